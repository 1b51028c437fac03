#pragma once
// Forecasts: the memory and time that a schedule would need. Policies that choose by forecasts (`dyn`,
// `optimal`) are given a Forecaster. The one in predictor.h runs the real executor and the real allocator on
// the `sim` driver, so measured memory equals its forecast.

#include <cstdint>

#include "vdnn/schedule.h"
#include "vdnn/tape.h"

namespace vdnn {

// The limits of a plan, in bytes.
struct Budgets {
  std::uint64_t device_bytes = 0;  // without the memory that the vendor's library itself uses
  std::uint64_t host_bytes = 0;    // page-locked
};

struct Forecast {
  std::uint64_t peak_bytes = 0;  // device memory, committed
  std::uint64_t host_bytes = 0;  // page-locked, staging memory of batches included
  double step_seconds = 0;       // in the steady state

  bool fits(const Budgets& budgets) const {
    return peak_bytes <= budgets.device_bytes && host_bytes <= budgets.host_bytes;
  }
};

// Deterministic: equal schedules have equal forecasts. A schedule that offloads nothing needs no more
// page-locked memory than any other schedule of the tape.
class Forecaster {
 public:
  virtual ~Forecaster() = default;
  virtual Forecast forecast(const Tape& tape, const Schedule& schedule) const = 0;
};

}  // namespace vdnn
