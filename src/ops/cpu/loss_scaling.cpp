// Dynamic loss scaling: multiplies gradient maps of losses by the scale, and updates the scale after a step.

#include "src/ops/loss_scaling.h"

#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/loops.h"
#include "src/ops/cpu/recipes.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cpu {

namespace {

class GradientScalingKernel final : public CpuKernel {
 public:
  GradientScalingKernel(const Context& context, std::uint64_t elements)
      : threads_(context.threads), elements_(elements) {}

  void run(const OpOperands& operands, const StepScalars&) override {
    const float* const gradient = read_pointer<float>(operands, 0);
    const float scale = read_pointer<LossScale>(operands, 1)->scale;
    float* const scaled = write_pointer<float>(operands, 0);
    for_each_range(elements_, threads_, [=](std::uint64_t begin, std::uint64_t end) {
#pragma omp simd
      for (std::uint64_t i = begin; i < end; ++i) {
        scaled[i] = scale * gradient[i];
      }
    });
  }

 private:
  int threads_;
  std::uint64_t elements_;
};

class LossScaleUpdateKernel final : public CpuKernel {
 public:
  explicit LossScaleUpdateKernel(const LossScaling& scaling) : scaling_(scaling) {}

  void run(const OpOperands& operands, const StepScalars&) override {
    const bool skipped = read_pointer<LossScaledNorm>(operands, 1)->skips != 0;
    *write_pointer<LossScale>(operands, 0) =
        ops::next(scaling_, *read_pointer<LossScale>(operands, 0), skipped);
  }

 private:
  LossScaling scaling_;
};

}  // namespace

LayerRecipe make_recipe(const Context&, const GradientScalingSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {.forward = own_algorithm(), .backward = {}});
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const GradientScalingSpec&,
                                       const KernelRequest& request) {
  return std::make_unique<GradientScalingKernel>(context, request.op.layer_outputs[0].elements());
}

LayerRecipe make_recipe(const Context&, const LossScaleUpdateSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {.forward = own_algorithm(), .backward = {}});
}

std::unique_ptr<CpuKernel> make_kernel(const Context&, const LossScaleUpdateSpec& spec,
                                       const KernelRequest&) {
  return std::make_unique<LossScaleUpdateKernel>(spec.scaling);
}

}  // namespace vdnn::cpu
