#pragma once
// Trials of engines on a device, which find their times and whether they compute correctly. cuDNN's order is
// an estimate, and engines have been wrong silently (engine_refusals.h). So each engine runs on random
// operands. Sampled elements of its result, corners among them, are compared with sums in double precision,
// and a correct engine is timed.
//
// Time. Runs are queued back to back between two events, after one that is not counted, so that the GPU has
// work while the host submits them. An engine whose second run takes three times as long as a run of the best
// so far is not run again, and that run is its time. (The first run loads its kernels.)
//
// Tolerance. Operands are independent and uniform in [-1, 1). The rounding errors of a sum of n products of
// root mean square s then add up as a random walk (Higham and Mary, SIAM J. Sci. Comput. 41(5), 2019). Their
// standard deviation is at most u n s, with the unit roundoff u of the sum, and r sqrt(n) s if operands are
// rounded first, with the roundoff r of that. The tolerance is eight deviations. u is 16 roundoffs of fp32,
// since libraries may add in any blocks. It is 64 roundoffs if operands are transformed first, or if tensor
// cores, which truncate, add: errors of Winograd's F(4x4, 3x3) are seven times those of plain sums (Lavin and
// Gray, CVPR 2016, table 5). An error of one tap changes a result by about s sqrt(n). Operands of narrow
// types are rounded beforehand, so that products are exact. Results are rounded to their type, by r times
// their size, which is sqrt(n) s.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/ops/cuda/engine_source.h"
#include "src/ops/cuda/vendor_library.h"
#include "vdnn/device.h"

namespace vdnn::cuda {

struct EngineTrial {
  // The reason why it could not be run. Empty: it ran, and the fields below are valid.
  std::string failure;
  bool no_room = false;    // it lacked memory beyond that of the operands
  double worst_error = 0;  // of the sampled elements; infinite if one is NaN
  double tolerance = 0;
  std::optional<double> seconds;  // of a run, if it was timed
  // For a correct engine that was not timed, because this limit in seconds of trials was reached: in a run
  // that keeps fp32, and in one that permits TF32, which compares other engines.
  std::optional<double> untimed_within_seconds;
  std::optional<double> untimed_within_seconds_tf32;

  std::optional<double>& untimed_within(ProductPrecision precision) {
    return precision == ProductPrecision::kTf32 ? untimed_within_seconds_tf32 : untimed_within_seconds;
  }
  const std::optional<double>& untimed_within(ProductPrecision precision) const {
    return precision == ProductPrecision::kTf32 ? untimed_within_seconds_tf32 : untimed_within_seconds;
  }
  friend bool operator==(const EngineTrial&, const EngineTrial&) = default;

  bool right() const { return failure.empty() && worst_error <= tolerance; }
};

enum class TrialKind : std::uint8_t {
  kOfResults,  // only results are checked
  kTimed       // a correct engine is also timed
};

// One thread at a time uses it.
class EngineTrials {
 public:
  virtual ~EngineTrials() = default;
  // Tries the engines of the question in order. go_on() is called before each engine; if it returns false,
  // the trials so far are returned. It is also called while an engine is timed; if it then returns false, the
  // time is that of the engine's second run. Throws OutOfMemory if not even the operands fit, DeviceError if
  // the device is lost.
  virtual std::vector<EngineTrial> run(const EngineQuestion& question, std::span<const Engine> engines,
                                       TrialKind kind, const std::function<bool()>& go_on) = 0;
  std::vector<EngineTrial> run(const EngineQuestion& question, std::span<const Engine> engines,
                               TrialKind kind) {
    return run(question, engines, kind, [] { return true; });
  }
};

struct DeviceTrialOptions {
  // Counted runs of a timed trial, after the first two and one that is not counted; at least 1.
  int timed_runs = 5;
};

// `make_device` is called once per question. Trials use the memory of that device's budget, which is freed
// with the device when run() returns. Trials throw InvalidArgument for types other than fp32, bf16 and fp16.
std::unique_ptr<EngineTrials> make_device_trials(std::function<std::unique_ptr<Device>()> make_device,
                                                 std::shared_ptr<VendorLibrary> library,
                                                 const DeviceTrialOptions& options = {});

// The largest permitted error of a sampled element of this type. `products` is the number of products in the
// longest sum, `rms_product` their root mean square.
double trial_tolerance(const Engine& engine, DataType elements, std::uint64_t products, double rms_product);

}  // namespace vdnn::cuda
