#pragma once
// What engines do on a device: how long they take, and whether they are right. cuDNN's order is a guess, and
// engines have been wrong without a sign (engine_refusals.h), so each is run on random operands; sampled
// elements of what it writes, corners among them, are held to sums in double precision, and one that is right
// is timed.
//
// Time. Runs are queued back to back between two events, after one that is not counted: what the host needs
// to submit them passes while the GPU has work. An engine whose second run takes three times as long as a run
// of the best before it is not run again; that run is its time. (The first loads its kernels.)
//
// Tolerance. Operands are independent, uniform in [-1, 1). Rounding errors of a sum of n products of root
// mean square s then add up as a random walk does (Higham and Mary, SIAM J. Sci. Comput. 41(5), 2019), with
// deviations of at most u n s in all, u the unit roundoff of the sum, and of r sqrt(n) s where operands are
// rounded first, r the roundoff of that. Eight deviations are taken; u stands for 16 roundoffs of fp32, since
// libraries add in blocks as they like, and for 64 where operands are transformed first or tensor cores,
// which truncate, add: Winograd's F(4x4, 3x3) is off by seven times as much as plain sums (Lavin and Gray,
// CVPR 2016, table 5). What is wrong by a tap is off by about s sqrt(n). Operands of narrow types are rounded
// beforehand, so that products are exact; results are rounded to their type, by r times their size, which is
// sqrt(n) s.

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
  // Why it could not be run; empty: it ran, and what follows is known.
  std::string failure;
  bool no_room = false;    // it failed for want of memory, though the operands had theirs
  double worst_error = 0;  // of the sampled elements; infinite where one of them is no number
  double tolerance = 0;
  std::optional<double> seconds;  // of a run, where it was timed
  // It was to be timed, but so many seconds of trials were over: in a run that keeps fp32, and in one that
  // permits TF32, which has other engines to compare. Of one that is right.
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
  kOfResults,  // only what it computes is looked at
  kTimed       // one that computes rightly is timed, too
};

// Used by one thread at a time.
class EngineTrials {
 public:
  virtual ~EngineTrials() = default;
  // A trial for each of the engines, which are of this question, until go_on() says no: it is asked before
  // each engine, and the trials are then those of the engines before. It is asked once more while an engine
  // is timed, whose time is then that of its second run. Throws OutOfMemory where not even the operands fit,
  // DeviceError where the device is lost.
  virtual std::vector<EngineTrial> run(const EngineQuestion& question, std::span<const Engine> engines,
                                       TrialKind kind, const std::function<bool()>& go_on) = 0;
  std::vector<EngineTrial> run(const EngineQuestion& question, std::span<const Engine> engines,
                               TrialKind kind) {
    return run(question, engines, kind, [] { return true; });
  }
};

struct DeviceTrialOptions {
  // Of a timed trial, after the first two and one that is not counted; at least 1.
  int timed_runs = 5;
};

// `make_device`: whose budget is what trials may take. Called once a question; it has gone, and all that it
// took, when run() returns. Of fp32, bf16 and fp16, else InvalidArgument.
std::unique_ptr<EngineTrials> make_device_trials(std::function<std::unique_ptr<Device>()> make_device,
                                                 std::shared_ptr<VendorLibrary> library,
                                                 const DeviceTrialOptions& options = {});

// The largest error that a sampled element of this type may have. `products`: the number in the longest sum;
// `rms_product`: their root mean square.
double trial_tolerance(const Engine& engine, DataType elements, std::uint64_t products, double rms_product);

}  // namespace vdnn::cuda
