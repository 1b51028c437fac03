// Gradient accumulation on gradients in their storage layout, whose padding stays zero.

#include <algorithm>

#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/loops.h"
#include "src/ops/cpu/recipes.h"
#include "src/ops/standard_updates.h"

namespace vdnn::cpu {

namespace {

class GradientSumKernel final : public CpuKernel {
 public:
  GradientSumKernel(const Context& context, std::uint64_t elements)
      : threads_(context.threads), elements_(elements) {}

  void run(const OpOperands& operands, const StepScalars& scalars) override {
    const float* const gradient = read_pointer<float>(operands, 0);
    float* const sum = write_pointer<float>(operands, 0);  // the same memory as the second read
    const bool first = scalars.micro_step == 0;
    for_each_range(elements_, threads_, [=](std::uint64_t begin, std::uint64_t end) {
      if (first) {
        std::copy(gradient + begin, gradient + end, sum + begin);
        return;
      }
#pragma omp simd
      for (std::uint64_t i = begin; i < end; ++i) {
        sum[i] += gradient[i];
      }
    });
  }

 private:
  int threads_;
  std::uint64_t elements_;
};

}  // namespace

OpRecipe make_gradient_sum_recipe(const ParameterRecipe& parameter) {
  return ops::standard_gradient_sum(parameter, own_algorithm());
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const GradientSumSpec&,
                                       const KernelRequest& request) {
  return std::make_unique<GradientSumKernel>(context,
                                             request.tape.value(request.op.reads[0]).bytes / sizeof(float));
}

}  // namespace vdnn::cpu
