#include "src/ops/standard_losses.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "src/ops/layer_operands.h"
#include "vdnn/error.h"

namespace vdnn::ops {

namespace {

constexpr std::string_view kSoftmaxCrossEntropy = "softmax cross-entropy";
constexpr std::string_view kMeanSquaredError = "mean squared error";
constexpr std::string_view kDiceCrossEntropy = "dice cross-entropy";

void require(bool condition, std::string_view loss, const std::string& why) {
  if (!condition) {
    throw InvalidArgument(std::string(loss) + ": " + why);
  }
}

void require_positive(float value, std::string_view loss, const std::string& what) {
  require(std::isfinite(value) && value > 0, loss, what + " " + std::to_string(value) + " must be positive");
}

void require_metrics(std::span<const TensorType> outputs, std::string_view loss) {
  require_count(outputs, 1, "outputs of " + std::string(loss) + " (metrics)");
  require_fp32_channels_last(outputs, loss);
  require_output(outputs[0], {kMetricsFloats}, loss);
}

double bytes_of(std::span<const TensorType> types) {
  double bytes = 0;
  for (const TensorType& type : types) {
    bytes += static_cast<double>(type.bytes());
  }
  return bytes;
}

// Losses over classes. In training, the forward pass saves probabilities and, if `dice` is given, Dice
// coefficients of that type. The backward pass computes the gradient from the saved values.
LayerRecipe class_loss_recipe(const LayerTypes& types, Mode mode, const LayerAlgorithms& algorithms,
                              const std::optional<TensorType>& dice = std::nullopt) {
  using namespace class_loss;
  const auto& [inputs, outputs] = types;
  const TensorType& logits = inputs[0];
  const auto elements = static_cast<double>(logits.elements());
  const double logits_bytes = bytes_of(inputs.first(1));
  const double target_bytes = bytes_of(inputs.subspan(1));
  LayerRecipe recipe;
  OpRecipe forward{.direction = Direction::kForward,
                   .reads = kForward.read_list(),
                   .writes = {kMetrics},
                   .may_overwrite = {},
                   .algorithms = algorithms.forward,
                   .cost = {.flops = 4 * elements, .bytes = logits_bytes + target_bytes + bytes_of(outputs)}};
  if (mode == Mode::kTraining) {
    OpRecipe backward{
        .direction = Direction::kBackwardData,
        .reads = {kProbabilities, kTargets},
        .writes = kBackward.write_list(),
        .may_overwrite = {{.write = kBackward.write(kDLogits), .read = kBackward.read(kProbabilities)}},
        .algorithms = algorithms.backward,
        .cost = {.flops = 2 * elements, .bytes = 2 * logits_bytes + target_bytes}};
    recipe.saved = {{.name = "probabilities", .type = logits}};
    forward.writes.push_back(kProbabilities);
    forward.may_overwrite = {{.write = kForward.write(kProbabilities), .read = kForward.read(kLogits)}};
    forward.cost.bytes += logits_bytes;
    if (dice) {
      forward.writes.push_back(kDice);
      backward.reads.push_back(kDice);
      forward.cost.bytes += static_cast<double>(dice->bytes());
      backward.cost.bytes += static_cast<double>(dice->bytes());
      recipe.saved.push_back({.name = "dice", .type = *dice});
    }
    recipe.backward = {std::move(backward)};
  }
  recipe.forward = {std::move(forward)};
  return recipe;
}

}  // namespace

ClassPlaces::ClassPlaces(std::span<const TensorType> inputs, std::string_view loss) {
  require_count(inputs, 2, "inputs of " + std::string(loss) + " (prediction, targets)");
  const Dims& logits = inputs[0].dims;
  Dims targets = logits;
  if (targets.size() >= 2) {
    targets.erase(targets.begin() + 1);
  }
  require(logits.size() >= 2 && inputs[0].data_type == DataType::kF32 &&
              inputs[1].data_type == DataType::kI32 && inputs[1].dims == targets,
          loss,
          "logits N x K x space (fp32) and targets N x space (i32) expected, got " + to_string(logits) +
              " and " + to_string(inputs[1].dims));
  samples = static_cast<std::uint64_t>(logits[0]);
  classes = static_cast<std::uint64_t>(logits[1]);
  places = inputs[1].elements() / samples;
}

void require_classes(const ClassPlaces& problem, std::span<const std::int32_t> targets) {
  const auto bad = std::ranges::find_if(targets, [&problem](std::int32_t target) {
    return target >= 0 && static_cast<std::uint64_t>(target) >= problem.classes;
  });
  if (bad == targets.end()) {
    return;
  }
  const auto at = static_cast<std::uint64_t>(bad - targets.begin());
  throw InvalidArgument("target " + std::to_string(*bad) + " of sample " +
                        std::to_string(at / problem.places) +
                        (problem.places > 1 ? ", place " + std::to_string(at % problem.places) + "," : "") +
                        " is not one of " + std::to_string(problem.classes) + " classes (0 to " +
                        std::to_string(problem.classes - 1) + "; negative: a place that does not count)");
}

LayerRecipe standard_recipe(const SoftmaxCrossEntropySpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms) {
  const ClassPlaces problem(types.inputs, kSoftmaxCrossEntropy);
  require_positive(spec.weight, kSoftmaxCrossEntropy, "weight");
  require_metrics(types.outputs, kSoftmaxCrossEntropy);
  return class_loss_recipe(types, mode, algorithms);
}

LayerRecipe standard_recipe(const DiceCrossEntropySpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms) {
  const ClassPlaces problem(types.inputs, kDiceCrossEntropy);
  require_positive(spec.weight, kDiceCrossEntropy, "weight");
  require_positive(spec.smooth, kDiceCrossEntropy, "smooth");
  require_metrics(types.outputs, kDiceCrossEntropy);
  const Dims sums{static_cast<std::int64_t>(problem.samples), 2 * static_cast<std::int64_t>(problem.classes)};
  return class_loss_recipe(types, mode, algorithms, TensorType{.dims = sums});
}

LayerRecipe standard_recipe(const MeanSquaredErrorSpec& spec, const LayerTypes& types, Mode mode,
                            const LayerAlgorithms& algorithms) {
  using enum OperandRole;
  const auto& [inputs, outputs] = types;
  require_count(inputs, 2, "inputs of mean squared error (prediction, targets)");
  require(inputs[0] == inputs[1] && inputs[0].data_type == DataType::kF32, kMeanSquaredError,
          "prediction and targets of one type (fp32) expected, got " + to_string(inputs[0].dims) + " and " +
              to_string(inputs[1].dims));
  require_positive(spec.weight, kMeanSquaredError, "weight");
  require_metrics(types.outputs, kMeanSquaredError);
  const auto elements = static_cast<double>(inputs[0].elements());
  LayerRecipe recipe;
  recipe.forward = {{.direction = Direction::kForward,
                     .reads = {{kInput, 0}, {kInput, 1}},
                     .writes = {{kOutput, 0}},
                     .may_overwrite = {},
                     .algorithms = algorithms.forward,
                     .cost = {.flops = 3 * elements, .bytes = bytes_of(inputs) + bytes_of(outputs)}}};
  if (mode == Mode::kTraining) {
    recipe.backward = {
        {.direction = Direction::kBackwardData,
         .reads = {{kInput, 0}, {kInput, 1}},
         .writes = {{kInputGradient, 0}},
         .may_overwrite = {{.write = 0, .read = 0}},
         .algorithms = algorithms.backward,
         .cost = {.flops = 2 * elements, .bytes = bytes_of(inputs) + bytes_of(inputs.first(1))}}};
  }
  return recipe;
}

}  // namespace vdnn::ops
