// Mean squared error. The sum is computed in double, and the gradient, (2 weight / elements) (x - t), in
// single precision.

#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/recipes.h"
#include "src/ops/cpu/sums.h"
#include "src/ops/standard_losses.h"

namespace vdnn::cpu {

namespace {

class ForwardKernel final : public CpuKernel {
 public:
  ForwardKernel(const Context& context, std::uint64_t elements)
      : threads_(context.threads), elements_(elements) {}

  void run(const OpOperands& operands, const StepScalars&) override {
    const float* const x = read_pointer<float>(operands, 0);
    const float* const t = read_pointer<float>(operands, 1);
    const double sum = sum_terms(elements_, threads_, operands.workspace, [x, t](std::uint64_t i) {
      const double difference = static_cast<double>(x[i]) - static_cast<double>(t[i]);
      return difference * difference;
    });
    const auto count = static_cast<double>(elements_);
    float* const metrics = write_pointer<float>(operands, 0);
    metrics[0] = static_cast<float>(sum / count);
    metrics[1] = 0;
    metrics[2] = static_cast<float>(count);
  }

 private:
  int threads_;
  std::uint64_t elements_;
};

class BackwardKernel final : public CpuKernel {
 public:
  BackwardKernel(const Context& context, std::uint64_t elements, float weight)
      : threads_(context.threads),
        elements_(elements),
        factor_(static_cast<float>(2 * static_cast<double>(weight) / static_cast<double>(elements))) {}

  void run(const OpOperands& operands, const StepScalars&) override {
    const float* const x = read_pointer<float>(operands, 0);
    const float* const t = read_pointer<float>(operands, 1);
    float* const dx = write_pointer<float>(operands, 0);
    const float factor = factor_;
    for_each_range(elements_, threads_, [=](std::uint64_t begin, std::uint64_t end) {
#pragma omp simd
      for (std::uint64_t i = begin; i < end; ++i) {
        dx[i] = factor * (x[i] - t[i]);
      }
    });
  }

 private:
  int threads_;
  std::uint64_t elements_;
  float factor_;
};

}  // namespace

LayerRecipe make_recipe(const Context&, const MeanSquaredErrorSpec& spec, const LayerTypes& types,
                        Mode mode) {
  require_fp32_channels_last(types.inputs, "mean squared error");
  const std::uint64_t elements = types.inputs.empty() ? 0 : types.inputs[0].elements();
  return ops::standard_recipe(
      spec, types, mode,
      {.forward = own_algorithm(sum_workspace_bytes(elements)), .backward = own_algorithm()});
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const MeanSquaredErrorSpec& spec,
                                       const KernelRequest& request) {
  const std::uint64_t elements = request.op.layer_inputs[0].elements();
  if (request.op.direction == Direction::kForward) {
    return std::make_unique<ForwardKernel>(context, elements);
  }
  return std::make_unique<BackwardKernel>(context, elements, spec.weight);
}

}  // namespace vdnn::cpu
