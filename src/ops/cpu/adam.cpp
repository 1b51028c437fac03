// Adam and AdamW on a parameter in its storage layout; adam_coefficients.h has the formula.

#include <cmath>

#include "src/ops/adam_coefficients.h"
#include "src/ops/cpu/gradient_scale.h"
#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/loops.h"
#include "src/ops/cpu/parameter_copy.h"
#include "src/ops/cpu/recipes.h"
#include "src/ops/standard_updates.h"

namespace vdnn::cpu {

namespace {

class AdamKernel final : public CpuKernel {
 public:
  AdamKernel(const Context& context, const AdamSpec& spec, const KernelRequest& request)
      : threads_(context.threads),
        spec_(spec),
        elements_(request.tape.value(request.op.reads[0]).bytes / sizeof(float)),
        gradient_scaling_(request, 2),
        copy_(request) {}

  void run(const OpOperands& operands, const StepScalars& scalars) override {
    const float* const w = read_pointer<float>(operands, 0);
    const float* const g = read_pointer<float>(operands, 1);
    const float* const m = read_pointer<float>(operands, 2);
    const float* const v = read_pointer<float>(operands, 3);
    float* const new_w = write_pointer<float>(operands, 0);
    float* const new_m = write_pointer<float>(operands, 1);
    float* const new_v = write_pointer<float>(operands, 2);
    const GradientScale gradient_scale = gradient_scaling_.of(operands);
    if (gradient_scale.skips) {
      return;  // writes overwrite their reads, so all values stay
    }
    const float scale = gradient_scale.scale;
    StepScalars counted = scalars;
    counted.step -= gradient_scale.skipped_steps;
    const ops::AdamCoefficients c(spec_, counted);
    const auto copy = copy_.of(operands);
    for_each_range(elements_, threads_, [=](std::uint64_t begin, std::uint64_t end) {
#pragma omp simd
      for (std::uint64_t i = begin; i < end; ++i) {
        const float gradient = scale * g[i] + c.gradient_decay * w[i];
        const float first = m[i] + c.gain1 * (gradient - m[i]);
        const float second = v[i] + c.gain2 * (gradient * gradient - v[i]);
        const float decayed = w[i] - c.parameter_decay * w[i];
        new_m[i] = first;
        new_v[i] = second;
        new_w[i] = decayed - c.step_size * (first / (std::sqrt(second) * c.root_scale + c.epsilon));
      }
      copy.write(new_w, begin, end);
    });
  }

 private:
  int threads_;
  AdamSpec spec_;
  std::uint64_t elements_;
  GradientScaling gradient_scaling_;
  ParameterCopy copy_;
};

}  // namespace

UpdateRecipe make_update_recipe(const AdamSpec& spec, const ParameterRecipe& parameter, bool clipped) {
  return ops::standard_update(spec, parameter, clipped, own_algorithm());
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const AdamSpec& spec,
                                       const KernelRequest& request) {
  return std::make_unique<AdamKernel>(context, spec, request);
}

}  // namespace vdnn::cpu
