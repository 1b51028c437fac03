#include "src/cli/resume.h"

#include <spdlog/spdlog.h>

#include <string>
#include <string_view>

#include "src/cli/output.h"
#include "vdnn/error.h"
#include "vdnn/zoo.h"

namespace vdnn {

namespace {

template <class Value>
void warn_if_different(const char* what, const Value& then, const Value& now) {
  if (then != now) {
    spdlog::warn(
        "the checkpoint was written with {} {}, and goes on with {}: the results are not those of a "
        "training that was never interrupted",
        what, then, now);
  }
}

std::string_view batches(bool of_all_ranks) {
  return of_all_ranks ? "the batches of all ranks" : "each rank's own batch";
}

void warn_of_differences(const CheckpointInfo& info, const PlannedRun& run) {
  const std::string& device = run.target.name;
  warn_if_different("device", info.device, device.substr(0, device.find(':')));
  warn_if_different("threads", info.threads, run.target.threads);
  warn_if_different("batch", info.batch, run.network.batch());
  warn_if_different("global batch", info.global_batch.value_or(run.global_batch()), run.global_batch());
  // Records were adopted where that is the other way.
  const bool normalizes_over_ranks = run.options.training.normalizes_over_ranks();
  const bool as_then = info.algorithms == run.options.recorded_algorithms;
  warn_if_different("batch normalisation over", batches(normalizes_over_ranks == as_then),
                    batches(normalizes_over_ranks));
  warn_if_different("algorithms of", info.algorithms_source, run.catalog->algorithms_source());
}

}  // namespace

std::optional<Checkpoint> open_checkpoint(const RunArguments& arguments) {
  return arguments.resume ? std::optional<Checkpoint>(*arguments.resume) : std::nullopt;
}

RunArguments resumed(const RunArguments& given, const std::optional<Checkpoint>& checkpoint) {
  RunArguments arguments = given;
  if (checkpoint) {
    const std::uint64_t seed = checkpoint->info().seed;
    if (arguments.seed.value_or(seed) != seed) {
      throw InvalidArgument("--seed " + std::to_string(*arguments.seed) + ": the checkpoint has the seed " +
                            std::to_string(seed) + ", and training goes on with that");
    }
    arguments.seed = seed;
  }
  return arguments;
}

PlannedRun plan_from(const std::optional<Checkpoint>& checkpoint, const RunOptions& given, bool speaks) {
  RunOptions options = given;
  if (speaks) {
    options.warn = log_warning;
  }
  if (!checkpoint) {
    return plan_run(options);
  }
  PlannedRun run = plan_resumed_run(*checkpoint, make_model(options.model), options);
  if (speaks) {
    warn_of_differences(checkpoint->info(), run);
  }
  return run;
}

}  // namespace vdnn
