// ReLU and addition, forward and backward: loops that work in place as well. NaN passes through, so that a
// run that diverges is seen in its loss. ReLU's gradient is told by Y, whose sign is that of X where it
// matters.

#include <array>
#include <cstring>

#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/loops.h"
#include "src/ops/cpu/recipes.h"
#include "vdnn/error.h"

namespace vdnn::cpu {

namespace {

// `in` and `out` may be the same array, but no other overlap: `omp simd` holds.
struct ReluForward {
  static void apply(const OpOperands& operands, std::uint64_t begin, std::uint64_t end) {
    const float* const x = read_pointer<float>(operands, 0);
    float* const y = write_pointer<float>(operands, 0);
#pragma omp simd
    for (std::uint64_t i = begin; i < end; ++i) {
      y[i] = x[i] < 0 ? 0.0F : x[i];
    }
  }
};

struct ReluBackward {
  static void apply(const OpOperands& operands, std::uint64_t begin, std::uint64_t end) {
    const float* const y = read_pointer<float>(operands, 0);
    const float* const dy = read_pointer<float>(operands, 1);
    float* const dx = write_pointer<float>(operands, 0);
#pragma omp simd
    for (std::uint64_t i = begin; i < end; ++i) {
      dx[i] = y[i] <= 0 ? 0.0F : dy[i];
    }
  }
};

struct Sum {
  static void apply(const OpOperands& operands, std::uint64_t begin, std::uint64_t end) {
    const float* const a = read_pointer<float>(operands, 0);
    const float* const b = read_pointer<float>(operands, 1);
    float* const sum = write_pointer<float>(operands, 0);
#pragma omp simd
    for (std::uint64_t i = begin; i < end; ++i) {
      sum[i] = a[i] + b[i];
    }
  }
};

// The gradient of a sum with respect to either term.
struct Copy {
  static void apply(const OpOperands& operands, std::uint64_t begin, std::uint64_t end) {
    const float* const dy = read_pointer<float>(operands, 0);
    float* const dx = write_pointer<float>(operands, 0);
    if (dx != dy) {
      std::memcpy(dx + begin, dy + begin, (end - begin) * sizeof(float));
    }
  }
};

template <class Function>
class ElementwiseKernel final : public CpuKernel {
 public:
  ElementwiseKernel(const Context& context, std::uint64_t elements)
      : threads_(context.threads), elements_(elements) {}

  void run(const OpOperands& operands, const StepScalars&) override {
    for_each_range(elements_, threads_, [&operands](std::uint64_t begin, std::uint64_t end) {
      Function::apply(operands, begin, end);
    });
  }

 private:
  int threads_;
  std::uint64_t elements_;
};

void check(const LayerTypes& types, std::size_t inputs, std::string_view layer) {
  require_count(types.inputs, inputs, layer);
  require_count(types.outputs, 1, layer);
  require_fp32_channels_last(types.inputs, layer);
  for (const TensorType& input : types.inputs) {
    require_output(input, types.outputs[0].dims, layer);
  }
  require_fp32_channels_last(types.outputs, layer);
}

// An op over `type`, one operation an element.
OpRecipe elementwise_op(const TensorType& type, Direction direction, std::vector<Operand> reads,
                        Operand write, std::vector<Overwrite> may_overwrite) {
  const double operands = static_cast<double>(reads.size()) + 1;
  return {.direction = direction,
          .reads = std::move(reads),
          .writes = {write},
          .may_overwrite = std::move(may_overwrite),
          .algorithms = own_algorithm(),
          .cost = {.flops = static_cast<double>(type.elements()),
                   .bytes = operands * static_cast<double>(type.bytes())}};
}

}  // namespace

LayerRecipe make_recipe(const Context&, const ReluSpec&, const LayerTypes& types, Mode mode) {
  using enum OperandRole;
  check(types, 1, "relu");
  const TensorType& type = types.inputs[0];
  LayerRecipe recipe;
  recipe.forward = {elementwise_op(type, Direction::kForward, {{kInput, 0}}, {kOutput, 0}, {{0, 0}})};
  if (mode == Mode::kTraining) {
    recipe.backward = {elementwise_op(type, Direction::kBackwardData, {{kOutput, 0}, {kOutputGradient, 0}},
                                      {kInputGradient, 0}, {{0, 1}})};
  }
  return recipe;
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const ReluSpec&,
                                       const KernelRequest& request) {
  const std::uint64_t elements = request.op.layer_outputs[0].elements();
  if (request.op.direction == Direction::kForward) {
    return std::make_unique<ElementwiseKernel<ReluForward>>(context, elements);
  }
  return std::make_unique<ElementwiseKernel<ReluBackward>>(context, elements);
}

LayerRecipe make_recipe(const Context&, const AddSpec&, const LayerTypes& types, Mode mode) {
  using enum OperandRole;
  check(types, 2, "add");
  const TensorType& type = types.outputs[0];
  LayerRecipe recipe;
  recipe.forward = {
      elementwise_op(type, Direction::kForward, {{kInput, 0}, {kInput, 1}}, {kOutput, 0}, {{0, 0}, {0, 1}})};
  if (mode == Mode::kTraining) {
    for (const std::uint32_t input : {0U, 1U}) {
      recipe.backward.push_back(elementwise_op(type, Direction::kBackwardData, {{kOutputGradient, 0}},
                                               {kInputGradient, input}, {{0, 0}}));
    }
  }
  return recipe;
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const AddSpec&, const KernelRequest& request) {
  const std::uint64_t elements = request.op.layer_outputs[0].elements();
  if (request.op.direction == Direction::kForward) {
    return std::make_unique<ElementwiseKernel<Sum>>(context, elements);
  }
  return std::make_unique<ElementwiseKernel<Copy>>(context, elements);
}

}  // namespace vdnn::cpu
