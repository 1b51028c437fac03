#pragma once
// Engines of a source after trials on the device. Engines that compute wrong values are removed, and times
// are added if requested. The tried engines keep the library's order; engine_algorithms.h orders engines by
// their times. Unless all engines of a question are timed (EngineTiming::kAll), only those are tried that are
// the first choice under some limits (engine_choice.h).

#include <functional>
#include <limits>
#include <memory>

#include "src/ops/cuda/engine_source.h"
#include "src/ops/cuda/engine_timings.h"
#include "src/ops/cuda/engine_trials.h"
#include "vdnn/gpu_system.h"

namespace vdnn::cuda {

struct TriedEnginesOptions {
  // Only engines that these limits permit are tried. The other engines follow them in the list, untried.
  EngineLimits limits;
  // Selects the permitted engines that are timed. They get their times only if all of them could be timed;
  // engines that did not fit into memory do not count.
  EngineTiming timing = EngineTiming::kOff;
  // After this many seconds of trials, as the report counts them, engines are checked but no longer timed.
  // The timings record, by precision, for which questions the limit was reached, so that a run with these
  // timings gets the same answers.
  double most_seconds = std::numeric_limits<double>::infinity();
};

struct TriedEnginesParts {
  std::shared_ptr<const EngineSource> source;
  std::shared_ptr<EngineTrials> trials;
  std::shared_ptr<EngineTimingsFile> timings;
  EngineTimingsFile::Warn warn;
  std::shared_ptr<EngineTrialReport> report = {};  // counts are added to a given report; null: no report
  // A clock in seconds with any origin. If empty, the steady clock.
  std::function<double()> clock = {};
};

class TriedEngines final : public EngineSource {
 public:
  // No part may be null or empty.
  TriedEngines(TriedEnginesParts parts, const TriedEnginesOptions& options);
  // For example "cudnn 9.19.0". If all engines are timed, more engines are offered, and the name is, for
  // example, "cudnn 9.19.0, timed".
  std::string name() const override;

 private:
  // Each engine is tried once per device of the timings. Every run that omits a wrong engine warns with the
  // engine's name, the question and the worst error. Throws NoEngine if all permitted engines are wrong or
  // cannot run.
  std::vector<Engine> do_list(const EngineQuestion& question) const override;

  TriedEnginesParts parts_;
  TriedEnginesOptions options_;
};

}  // namespace vdnn::cuda
