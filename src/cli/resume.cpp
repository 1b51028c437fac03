#include "src/cli/resume.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <utility>

#include "src/cli/output.h"
#include "vdnn/error.h"
#include "vdnn/zoo.h"

namespace vdnn {

namespace {

class Differences {
 public:
  template <class Value>
  void add_if_different(const char* what, const Value& then, const Value& now) {
    if (then != now) {
      std::ostringstream text;
      text << "the checkpoint was written with " << what << ' ' << then << ", and training continues with "
           << now << ": the results differ from those of an uninterrupted training";
      texts_.push_back(text.str());
    }
  }
  std::vector<std::string> texts() && { return std::move(texts_); }

 private:
  std::vector<std::string> texts_;
};

std::string_view batches(bool of_all_ranks) {
  return of_all_ranks ? "the batches of all ranks" : "each rank's own batch";
}

std::string in_words(const PrecisionOptions& precision) {
  std::string layers;
  for (const std::string& layer : precision.fp32_layers) {
    layers += (layers.empty() ? " except for " : ", ") + layer;
  }
  return to_string(precision.storage) + layers;
}

// Library and version of a source of algorithms. The rest of the text describes how algorithms were chosen,
// which does not matter if they are the same.
std::string library_of(const std::string& algorithms_source) {
  return algorithms_source.substr(0, algorithms_source.find(','));
}

}  // namespace

std::vector<std::string> differences(const CheckpointInfo& info, const PlannedRun& run) {
  Differences found;
  const std::string& device = run.target.name;
  found.add_if_different("device", info.device, device.substr(0, device.find(':')));
  found.add_if_different("threads", info.threads, run.target.threads);
  found.add_if_different("batch", info.batch, run.batch());
  found.add_if_different("global batch", info.global_batch.value_or(run.global_batch()), run.global_batch());
  found.add_if_different("gradients summed over devices in", to_string(info.reduce_precision),
                         to_string(run.options.training.reduces_in()));
  const PrecisionOptions& precision = run.options.training.precision;
  if (info.precision != precision) {
    found.add_if_different("precision", in_words(info.precision), in_words(precision));
    // With another precision, the algorithms differ, too. Only they show whether the checkpoint's run
    // normalised over all ranks, so no more can be compared.
    return std::move(found).texts();
  }
  // Planning has replaced recorded algorithms if one run normalised over all ranks and the other did not. So
  // if no recorded algorithm was replaced, both normalise alike.
  const bool normalizes_over_ranks = run.options.training.normalizes_over_ranks();
  const bool as_then = info.algorithms == run.options.recorded_algorithms;
  found.add_if_different("batch normalisation over", batches(normalizes_over_ranks == as_then),
                         batches(normalizes_over_ranks));
  const std::string source = run.catalog->algorithms_source();
  found.add_if_different("algorithms of",
                         as_then ? library_of(info.algorithms_source) : info.algorithms_source,
                         as_then ? library_of(source) : source);
  return std::move(found).texts();
}

std::optional<Checkpoint> open_checkpoint(const RunArguments& arguments) {
  return arguments.resume ? std::optional<Checkpoint>(*arguments.resume) : std::nullopt;
}

RunArguments resumed(const RunArguments& given, const std::optional<Checkpoint>& checkpoint) {
  RunArguments arguments = given;
  if (checkpoint) {
    const std::uint64_t seed = checkpoint->info().seed;
    if (arguments.seed.value_or(seed) != seed) {
      throw InvalidArgument("--seed " + std::to_string(*arguments.seed) + ": the checkpoint has the seed " +
                            std::to_string(seed) + ", and training continues with it");
    }
    arguments.seed = seed;
    if (arguments.loss_scale && checkpoint->info().loss_scale) {
      throw InvalidArgument("--loss-scale: the checkpoint has a loss scale, and training continues with it");
    }
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
    std::ranges::for_each(differences(checkpoint->info(), run), log_warning);
  }
  return run;
}

}  // namespace vdnn
