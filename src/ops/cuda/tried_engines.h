#pragma once
// Engines of a source that have been tried on the device: none that computes wrong values, with measured
// times where those are wanted. The order is the library's, so that which engines there are does not depend
// on times; engine_algorithms.h goes by these. Without times, only what some limits choose is tried.

#include <functional>
#include <limits>
#include <memory>

#include "src/ops/cuda/engine_source.h"
#include "src/ops/cuda/engine_timings.h"
#include "src/ops/cuda/engine_trials.h"
#include "vdnn/gpu_system.h"

namespace vdnn::cuda {

struct TriedEnginesOptions {
  // Only what these permit is tried; the rest follows it, untried.
  EngineLimits limits;
  // A question's engines have times if all that it is about were timed but those without room for it.
  EngineTiming timing = EngineTiming::kOff;
  // After so many seconds of trials, as the report counts them, no further engine is timed, only its results
  // are looked at. The timings remember, by precision, of which questions, so that a run that goes by them
  // has the same answers.
  double most_seconds = std::numeric_limits<double>::infinity();
};

struct TriedEnginesParts {
  std::shared_ptr<const EngineSource> source;
  std::shared_ptr<EngineTrials> trials;
  std::shared_ptr<EngineTimingsFile> timings;
  EngineTimingsFile::Warn warn;
  std::shared_ptr<EngineTrialReport> report = {};  // goes on from what it has; null: nobody asks
  // Seconds since whenever. Empty: the steady clock.
  std::function<double()> clock = {};
};

class TriedEngines final : public EngineSource {
 public:
  // No part is null or empty.
  TriedEngines(TriedEnginesParts parts, const TriedEnginesOptions& options);
  // "cudnn 9.19.0", or, where all are timed, which offers more of them, "cudnn 9.19.0, timed".
  std::string name() const override;

 private:
  // Each engine is tried once for each place of the timings; the first run that finds it wrong, and each one
  // after, is warned with its name, the question and the worst error. Throws NoEngine where all that is
  // permitted is wrong or cannot be run.
  std::vector<Engine> do_list(const EngineQuestion& question) const override;

  TriedEnginesParts parts_;
  TriedEnginesOptions options_;
};

}  // namespace vdnn::cuda
