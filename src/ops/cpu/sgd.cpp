// Momentum SGD on a parameter in its storage layout. The order of elements does not matter. Padding is zero
// in parameter, gradient and momentum, and stays zero.

#include "src/ops/cpu/gradient_scale.h"
#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/loops.h"
#include "src/ops/cpu/parameter_copy.h"
#include "src/ops/cpu/recipes.h"
#include "src/ops/standard_updates.h"

namespace vdnn::cpu {

namespace {

class SgdKernel final : public CpuKernel {
 public:
  SgdKernel(const Context& context, const SgdSpec& spec, const KernelRequest& request)
      : threads_(context.threads),
        spec_(spec),
        elements_(request.tape.value(request.op.reads[0]).bytes / sizeof(float)),
        gradient_scaling_(request, 1),
        copy_(request) {}

  void run(const OpOperands& operands, const StepScalars& scalars) override {
    const float* const w = read_pointer<float>(operands, 0);
    const float* const g = read_pointer<float>(operands, 1);
    const float* const m = read_pointer<float>(operands, 2);
    float* const new_w = write_pointer<float>(operands, 0);
    float* const new_m = write_pointer<float>(operands, 1);
    const SgdSpec spec = spec_;
    const float learning_rate = scalars.learning_rate;
    const GradientScale gradient_scale = gradient_scaling_.of(operands);
    if (gradient_scale.skips) {
      return;  // writes overwrite their reads, so all values stay
    }
    const float scale = gradient_scale.scale;
    const auto copy = copy_.of(operands);
    for_each_range(elements_, threads_, [=](std::uint64_t begin, std::uint64_t end) {
#pragma omp simd
      for (std::uint64_t i = begin; i < end; ++i) {
        const float momentum = spec.momentum * m[i] + (scale * g[i] + spec.weight_decay * w[i]);
        new_m[i] = momentum;
        new_w[i] = w[i] - learning_rate * momentum;
      }
      copy.write(new_w, begin, end);
    });
  }

 private:
  int threads_;
  SgdSpec spec_;
  std::uint64_t elements_;
  GradientScaling gradient_scaling_;
  ParameterCopy copy_;
};

}  // namespace

UpdateRecipe make_update_recipe(const SgdSpec& spec, const ParameterRecipe& parameter, bool clipped) {
  return ops::standard_update(spec, parameter, clipped, own_algorithm());
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const SgdSpec& spec,
                                       const KernelRequest& request) {
  return std::make_unique<SgdKernel>(context, spec, request);
}

}  // namespace vdnn::cpu
