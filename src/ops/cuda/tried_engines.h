#pragma once
// Engines of a source after trials on the device: those that compute wrong values are removed, and times are
// added if requested. The order stays the library's, so that the set of engines does not depend on times;
// engine_algorithms.h orders by times. Without times, only engines that are the choice for some limits are
// tried.

#include <functional>
#include <limits>
#include <memory>

#include "src/ops/cuda/engine_source.h"
#include "src/ops/cuda/engine_timings.h"
#include "src/ops/cuda/engine_trials.h"
#include "vdnn/gpu_system.h"

namespace vdnn::cuda {

struct TriedEnginesOptions {
  // Only engines that these permit are tried; the others follow them, untried.
  EngineLimits limits;
  // A question's engines get times only if all compared engines were timed, except those without room.
  EngineTiming timing = EngineTiming::kOff;
  // After this many seconds of trials, counted by the report, engines are checked but no longer timed. The
  // timings record, by precision, which questions that concerns, so that a run with these timings has the
  // same answers.
  double most_seconds = std::numeric_limits<double>::infinity();
};

struct TriedEnginesParts {
  std::shared_ptr<const EngineSource> source;
  std::shared_ptr<EngineTrials> trials;
  std::shared_ptr<EngineTimingsFile> timings;
  EngineTimingsFile::Warn warn;
  std::shared_ptr<EngineTrialReport> report = {};  // continued if given; null: no report
  // A clock in seconds with any origin. Empty: the steady clock.
  std::function<double()> clock = {};
};

class TriedEngines final : public EngineSource {
 public:
  // No part may be null or empty.
  TriedEngines(TriedEnginesParts parts, const TriedEnginesOptions& options);
  // "cudnn 9.19.0", or "cudnn 9.19.0, timed" if all engines are timed, which offers more of them.
  std::string name() const override;

 private:
  // Each engine is tried once per device of the timings. Every run in which a wrong engine is left out gets a
  // warning with its name, the question and the worst error. Throws NoEngine if all permitted engines are
  // wrong or cannot be run.
  std::vector<Engine> do_list(const EngineQuestion& question) const override;

  TriedEnginesParts parts_;
  TriedEnginesOptions options_;
};

}  // namespace vdnn::cuda
