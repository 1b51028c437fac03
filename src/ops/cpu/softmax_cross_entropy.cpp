// The loss. Sums run in double and in one order whatever the number of threads: one thread does it all, since
// logits are small beside any feature map. A sample's largest logit is the first of equals.

#include <algorithm>
#include <cmath>
#include <span>

#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/loops.h"
#include "src/ops/cpu/recipes.h"
#include "vdnn/error.h"

namespace vdnn::cpu {

namespace {

struct Problem {
  std::size_t samples = 0;
  std::size_t classes = 0;

  explicit Problem(std::span<const TensorType> inputs) {
    require_count(inputs, 2, "inputs of softmax cross-entropy (logits, targets)");
    require_fp32_channels_last(inputs.first(1), "softmax cross-entropy");
    const Dims& logits = inputs[0].dims;
    if (logits.size() != 2 || inputs[1].data_type != DataType::kI32 ||
        inputs[1].dims != Dims{logits.front()}) {
      throw InvalidArgument("softmax cross-entropy: logits N x K and targets N (i32) expected, got " +
                            to_string(logits) + " and " + to_string(inputs[1].dims));
    }
    samples = static_cast<std::size_t>(logits[0]);
    classes = static_cast<std::size_t>(logits[1]);
  }

  std::span<const std::int32_t> targets(const OpOperands& operands) const {
    return {read_pointer<std::int32_t>(operands, 1), samples};
  }
};

bool counts(std::int32_t target) {
  return target >= 0;
}

class ForwardKernel final : public CpuKernel {
 public:
  explicit ForwardKernel(const Problem& problem) : problem_(problem) {}

  void run(const OpOperands& operands, const StepScalars&) override {
    const std::span<const std::int32_t> targets = problem_.targets(operands);
    check(targets);
    const float* logits = read_pointer<float>(operands, 0);
    float* probabilities = operands.writes.size() > 1 ? write_pointer<float>(operands, 1) : nullptr;
    double loss = 0;
    std::size_t counted = 0;
    std::size_t correct = 0;
    for (const std::int32_t target : targets) {
      const Sample sample = look_at({logits, problem_.classes});
      if (counts(target)) {
        loss += sample.log_sum - static_cast<double>(logits[target]);
        ++counted;
        correct += sample.largest == static_cast<std::size_t>(target) ? 1 : 0;
      }
      // May be the same row: after everything that was asked of it.
      if (probabilities != nullptr) {
        write_probabilities({logits, problem_.classes}, sample.log_sum, probabilities);
        probabilities += problem_.classes;
      }
      logits += problem_.classes;
    }
    float* const metrics = write_pointer<float>(operands, 0);
    metrics[0] = counted == 0 ? 0.0F : static_cast<float>(loss / static_cast<double>(counted));
    metrics[1] = static_cast<float>(correct);
    metrics[2] = static_cast<float>(counted);
  }

 private:
  struct Sample {
    double log_sum = 0;  // log of the sum of exponentials
    std::size_t largest = 0;
  };

  void check(std::span<const std::int32_t> targets) const {
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (counts(targets[i]) && static_cast<std::size_t>(targets[i]) >= problem_.classes) {
        throw InvalidArgument("target " + std::to_string(targets[i]) + " of sample " + std::to_string(i) +
                              " is not one of " + std::to_string(problem_.classes) + " classes");
      }
    }
  }

  static Sample look_at(std::span<const float> logits) {
    const auto largest = std::ranges::max_element(logits);
    double sum = 0;
    for (const float logit : logits) {
      sum += std::exp(static_cast<double>(logit) - static_cast<double>(*largest));
    }
    return {.log_sum = static_cast<double>(*largest) + std::log(sum),
            .largest = static_cast<std::size_t>(largest - logits.begin())};
  }

  static void write_probabilities(std::span<const float> logits, double log_sum, float* probabilities) {
    for (std::size_t k = 0; k < logits.size(); ++k) {
      probabilities[k] = static_cast<float>(std::exp(static_cast<double>(logits[k]) - log_sum));
    }
  }

  Problem problem_;
};

// dX = (p - onehot) / samples that count.
class BackwardKernel final : public CpuKernel {
 public:
  explicit BackwardKernel(const Problem& problem) : problem_(problem) {}

  void run(const OpOperands& operands, const StepScalars&) override {
    const std::span<const std::int32_t> targets = problem_.targets(operands);
    const auto counted = static_cast<double>(std::ranges::count_if(targets, counts));
    const float* probabilities = read_pointer<float>(operands, 0);
    float* gradient = write_pointer<float>(operands, 0);
    for (const std::int32_t target : targets) {
      for (std::size_t k = 0; k < problem_.classes; ++k) {
        const double hit = static_cast<std::size_t>(target) == k ? 1 : 0;
        gradient[k] =
            counts(target) ? static_cast<float>((static_cast<double>(probabilities[k]) - hit) / counted) : 0;
      }
      probabilities += problem_.classes;
      gradient += problem_.classes;
    }
  }

 private:
  Problem problem_;
};

}  // namespace

LayerRecipe make_recipe(const Context&, const SoftmaxCrossEntropySpec&, const LayerTypes& types, Mode mode) {
  using enum OperandRole;
  const Problem problem(types.inputs);
  require_count(types.outputs, 1, "outputs of softmax cross-entropy (metrics)");
  require_fp32_channels_last(types.outputs, "softmax cross-entropy");
  require_output(types.outputs[0], {kMetricsFloats}, "softmax cross-entropy");
  const TensorType& logits = types.inputs[0];
  const auto elements = static_cast<double>(logits.elements());
  const double small_bytes = static_cast<double>(types.inputs[1].bytes());

  LayerRecipe recipe;
  OpRecipe forward{.direction = Direction::kForward,
                   .reads = {{kInput, 0}, {kInput, 1}},
                   .writes = {{kOutput, 0}},
                   .may_overwrite = {},
                   .algorithms = own_algorithm(),
                   .cost = {.flops = 4 * elements,
                            .bytes = static_cast<double>(logits.bytes()) + small_bytes +
                                     static_cast<double>(types.outputs[0].bytes())}};
  if (mode == Mode::kTraining) {
    recipe.saved = {{.name = "probabilities", .type = logits}};
    forward.writes.push_back({kSaved, 0});
    forward.may_overwrite = {{.write = 1, .read = 0}};
    forward.cost.bytes += static_cast<double>(logits.bytes());
    recipe.backward = {
        {.direction = Direction::kBackwardData,
         .reads = {{kSaved, 0}, {kInput, 1}},
         .writes = {{kInputGradient, 0}},
         .may_overwrite = {{.write = 0, .read = 0}},
         .algorithms = own_algorithm(),
         .cost = {.flops = 2 * elements, .bytes = 2 * static_cast<double>(logits.bytes()) + small_bytes}}};
  }
  recipe.forward = {std::move(forward)};
  return recipe;
}

std::unique_ptr<CpuKernel> make_kernel(const Context&, const SoftmaxCrossEntropySpec&,
                                       const KernelRequest& request) {
  const Problem problem(request.op.layer_inputs);
  if (request.op.direction == Direction::kForward) {
    return std::make_unique<ForwardKernel>(problem);
  }
  return std::make_unique<BackwardKernel>(problem);
}

}  // namespace vdnn::cpu
