#pragma once
// Trials of engines on a device, which find their times and whether they compute correctly. cuDNN's order is
// an estimate, and engines have been wrong silently (engine_refusals.h). So each engine runs on random
// operands. A trial compares sampled elements of the result, including corners, with sums in double
// precision. Then it times a correct engine.
//
// Time. Runs are queued back to back between two events. An uncounted run is submitted first, so that the GPU
// has work while the host submits the counted runs. An engine's first run loads its kernels. If its second
// run takes three times as long as a run of the best engine so far, the engine is not run again, and its time
// is that of the second run.
//
// Tolerance. Operands are independent and uniform in [-1, 1). The rounding errors of a sum of n products of
// root mean square s then add up as a random walk (Higham and Mary, SIAM J. Sci. Comput. 41(5), 2019). The
// standard deviation of the total error is at most u n s, where u is the unit roundoff of the sum. If
// operands are first rounded with unit roundoff r, the error has an additional standard deviation of r
// sqrt(n) s. The tolerance is eight deviations. u is 16 roundoffs of fp32, since libraries may split a sum
// into blocks of any size. u is 64 roundoffs if operands are transformed first: errors of Winograd's
// F(4x4, 3x3) are seven times those of plain sums (Lavin and Gray, CVPR 2016, table 5). It is also 64
// roundoffs if tensor cores add, since tensor cores truncate. A wrong tap of the window changes a result by
// about s sqrt(n), which exceeds the tolerance. Operands of narrow types are rounded in advance, so that
// products are exact. The size of a result is about sqrt(n) s, and rounding it to its type adds an error of
// r sqrt(n) s.

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
  // The reason why the engine could not run. If it is empty, the engine ran, and the fields below are valid.
  std::string failure;
  bool no_room = false;    // the workspace did not fit beside the operands
  double worst_error = 0;  // the largest error of the sampled elements; infinite if one is NaN
  double tolerance = 0;
  std::optional<double> seconds;  // time of a run, if the engine was timed
  // If a correct engine was not timed because the trials reached their time limit, that limit in seconds. One
  // value is for runs that keep fp32, the other for runs that permit TF32 and so compare other engines.
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

// Use an object from one thread at a time.
class EngineTrials {
 public:
  virtual ~EngineTrials() = default;
  // Tries the engines of the question in order. run() calls go_on() before each engine; if go_on() returns
  // false, run() returns the trials so far. run() also calls go_on() while it times an engine. If go_on()
  // then returns false, the time is that of the engine's second run. Throws OutOfMemory if not even the
  // operands fit, DeviceError if the device is lost.
  virtual std::vector<EngineTrial> run(const EngineQuestion& question, std::span<const Engine> engines,
                                       TrialKind kind, const std::function<bool()>& go_on) = 0;
  std::vector<EngineTrial> run(const EngineQuestion& question, std::span<const Engine> engines,
                               TrialKind kind) {
    return run(question, engines, kind, [] { return true; });
  }
};

struct DeviceTrialOptions {
  // Counted runs of a timed trial, at least 1. Three uncounted runs precede them: the first two runs of the
  // engine, and the run before the first event.
  int timed_runs = 5;
};

// `make_device` is called once per question. Trials use memory within that device's budget. When run()
// returns, the device is destroyed and its memory freed. Trials throw InvalidArgument for types other than
// fp32, bf16 and fp16.
std::unique_ptr<EngineTrials> make_device_trials(std::function<std::unique_ptr<Device>()> make_device,
                                                 std::shared_ptr<VendorLibrary> library,
                                                 const DeviceTrialOptions& options = {});

// The largest permitted error of a sampled element of type `elements`. `products` is the number of products
// in the longest sum, `rms_product` their root mean square.
double trial_tolerance(const Engine& engine, DataType elements, std::uint64_t products, double rms_product);

}  // namespace vdnn::cuda
