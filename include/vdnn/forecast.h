#pragma once
// What a policy may ask of the world: what a schedule would take. Policies that choose by it (`dyn`,
// `optimal`) are handed a Forecaster; predictor.h has the one that runs the real executor and the real
// allocator on the `sim` driver, so that what a policy believes is what will be measured.

#include <cstdint>

#include "vdnn/schedule.h"
#include "vdnn/tape.h"

namespace vdnn {

// What a plan must stay in. Bytes.
struct Budgets {
  std::uint64_t device_bytes = 0;  // for everything but the library's own memory
  std::uint64_t host_bytes = 0;    // page-locked
};

struct Forecast {
  std::uint64_t peak_bytes = 0;  // device memory, committed
  std::uint64_t host_bytes = 0;  // page-locked, with what batches are staged in
  double step_seconds = 0;       // in the steady state

  bool fits(const Budgets& budgets) const {
    return peak_bytes <= budgets.device_bytes && host_bytes <= budgets.host_bytes;
  }
};

// Deterministic: equal schedules, equal forecasts.
class Forecaster {
 public:
  virtual ~Forecaster() = default;
  virtual Forecast forecast(const Tape& tape, const Schedule& schedule) const = 0;
};

}  // namespace vdnn
