#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "src/run/plan_options.h"
#include "vdnn/checker.h"
#include "vdnn/error.h"
#include "vdnn/planned_run.h"

namespace vdnn {

namespace {

const std::string& name_of(const Tape& tape, const TapeParameter& parameter) {
  return tape.value(parameter.value).name;
}

// Does not compare the layouts in memory, since a layout may depend on the batch.
void require_same_parameter(const Tape& training, const Tape& evaluation, std::size_t index) {
  const TapeParameter& trained = training.parameters()[index];
  const TapeParameter& evaluated = evaluation.parameters()[index];
  const std::string& name = name_of(training, trained);
  if (name_of(evaluation, evaluated) != name) {
    throw InvalidArgument("evaluation has parameter " + name_of(evaluation, evaluated) +
                          " where training has " + name);
  }
  if (evaluated.recipe.type != trained.recipe.type) {
    throw InvalidArgument(
        "parameter " + name + " is " + to_string(evaluated.recipe.type.dims) + " in evaluation and " +
        to_string(trained.recipe.type.dims) + " in training" +
        (evaluated.recipe.type.dims == trained.recipe.type.dims ? ", but the types differ" : ""));
  }
  if (evaluated.recipe.storage_layout == trained.recipe.storage_layout &&
      evaluated.recipe.storage_bytes != trained.recipe.storage_bytes) {
    throw InvalidArgument("parameter " + name + " needs " + std::to_string(evaluated.recipe.storage_bytes) +
                          " bytes in evaluation and " + std::to_string(trained.recipe.storage_bytes) +
                          " in training");
  }
}

void require_same_parameters(const Tape& training, const Tape& evaluation) {
  const std::size_t common = std::min(training.parameters().size(), evaluation.parameters().size());
  for (std::size_t index = 0; index < common; ++index) {
    require_same_parameter(training, evaluation, index);
  }
  if (training.parameters().size() > common) {
    throw InvalidArgument("parameter " + name_of(training, training.parameters()[common]) +
                          " is missing in evaluation");
  }
  if (evaluation.parameters().size() > common) {
    throw InvalidArgument("parameter " + name_of(evaluation, evaluation.parameters()[common]) +
                          " is missing in training");
  }
}

bool store_parameters_alike(const Tape& training, const Tape& evaluation) {
  const auto layout = [](const TapeParameter& parameter) { return parameter.recipe.storage_layout; };
  return std::ranges::equal(training.parameters(), evaluation.parameters(), {}, layout, layout);
}

// If training has an op of the same name, the evaluation's op uses that op's algorithm. So a run that resumes
// with the algorithms of its checkpoint evaluates like the uninterrupted run. For all other ops,
// `options.algorithms` chooses.
Plan evaluation_plan(const PlannedRun& run, const Tape& evaluation) {
  PlanOptions options = plan_options(run.options, Policy::kOffloadNone);
  options.recorded.clear();
  Plan plan = make_plan(evaluation, options);
  std::map<std::string_view, std::string_view> trained;
  for (OpId id = 0; id < run.tape->ops().size(); ++id) {
    const Op& op = run.tape->op(id);
    trained.emplace(op.name, op.algorithms[run.plan.algorithms[id]].name);
  }
  for (OpId id = 0; id < evaluation.ops().size(); ++id) {
    const Op& op = evaluation.op(id);
    if (const auto found = trained.find(op.name); found != trained.end()) {
      const auto algorithm = std::ranges::find(op.algorithms, found->second, &Algorithm::name);
      if (algorithm != op.algorithms.end()) {
        plan.algorithms[id] = static_cast<std::uint32_t>(algorithm - op.algorithms.begin());
      }
    }
  }
  return plan;
}

EvaluationPlan evaluation_with_batch(const PlannedRun& run, std::int64_t batch) {
  const Network network = run.own_network().with_batch(batch);
  EvaluationPlan evaluation{
      .batch = batch,
      .tape = lower_to_evaluation_tape(network, *run.catalog, run.options.training.precision),
      .schedule = {},
      .peak_bytes = 0};
  require_same_parameters(*run.tape, *evaluation.tape);
  evaluation.schedule = make_schedule(*evaluation.tape, evaluation_plan(run, *evaluation.tape));
  require_valid(*evaluation.tape, evaluation.schedule);
  return evaluation;
}

// Returns nothing if the network or the device cannot compute `batch` and `batch` is smaller than training's.
// An error with training's own batch is rethrown.
std::optional<EvaluationPlan> try_evaluation(const PlannedRun& run, std::int64_t batch) {
  try {
    return evaluation_with_batch(run, batch);
  } catch (const InvalidArgument&) {
    if (batch == run.batch()) {
      throw;
    }
    return std::nullopt;
  }
}

}  // namespace

EvaluationPlan plan_evaluation(const PlannedRun& run, std::optional<std::uint64_t> most_bytes) {
  const std::uint64_t most = most_bytes.value_or(run.prediction.peak_bytes);
  std::optional<std::uint64_t> smallest;
  std::int64_t smallest_batch = 0;
  for (std::int64_t batch = run.batch(); batch > 0; batch = batch % 2 == 0 ? batch / 2 : 0) {
    std::optional<EvaluationPlan> evaluation = try_evaluation(run, batch);
    if (!evaluation || !store_parameters_alike(*run.tape, *evaluation->tape)) {
      continue;
    }
    const std::uint64_t peak =
        predict_evaluation_peak(*run.tape, *evaluation->tape, evaluation->schedule, prediction_options(run));
    evaluation->peak_bytes = peak;
    if (peak <= most) {
      return *std::move(evaluation);
    }
    if (peak < smallest.value_or(peak + 1)) {
      smallest = peak;
      smallest_batch = batch;
    }
  }
  if (!smallest) {
    throw InvalidArgument("network " + run.tape->model() +
                          " cannot be evaluated: there is no batch with which " + run.target.name +
                          " stores its parameters as in training");
  }
  throw OutOfMemory("evaluation needs more memory than training: batch " + std::to_string(smallest_batch) +
                        ", the smallest try, needs " + std::to_string(*smallest) + " bytes",
                    {.asked = *smallest, .budget = most});
}

}  // namespace vdnn
