// Adam and AdamW over a parameter as it is stored; adam_coefficients.h has the formula.

#include <cmath>

#include "src/ops/adam_coefficients.h"
#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/loops.h"
#include "src/ops/cpu/recipes.h"
#include "src/ops/standard_updates.h"

namespace vdnn::cpu {

namespace {

class AdamKernel final : public CpuKernel {
 public:
  AdamKernel(const Context& context, const AdamSpec& spec, std::uint64_t elements, bool clipped)
      : threads_(context.threads), spec_(spec), elements_(elements), clipped_(clipped) {}

  void run(const OpOperands& operands, const StepScalars& scalars) override {
    const float* const w = read_pointer<float>(operands, 0);
    const float* const g = read_pointer<float>(operands, 1);
    const float* const m = read_pointer<float>(operands, 2);
    const float* const v = read_pointer<float>(operands, 3);
    float* const new_w = write_pointer<float>(operands, 0);
    float* const new_m = write_pointer<float>(operands, 1);
    float* const new_v = write_pointer<float>(operands, 2);
    const ops::AdamCoefficients c(spec_, scalars);
    const float scale = clipped_ ? read_pointer<float>(operands, 4)[1] : 1.0F;
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
    });
  }

 private:
  int threads_;
  AdamSpec spec_;
  std::uint64_t elements_;
  bool clipped_;  // the last read is the gradients' norm
};

}  // namespace

UpdateRecipe make_update_recipe(const AdamSpec& spec, const ParameterRecipe& parameter, bool clipped) {
  return ops::standard_update(spec, parameter, clipped, own_algorithm());
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const AdamSpec& spec,
                                       const KernelRequest& request) {
  const std::uint64_t bytes = request.tape.value(request.op.reads[0]).bytes;
  return std::make_unique<AdamKernel>(context, spec, bytes / sizeof(float), request.op.reads.size() > 4);
}

}  // namespace vdnn::cpu
