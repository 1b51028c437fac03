// The norm of all gradients together and the scale that clips it (Pascanu et al. 2013), as
// torch.nn.utils.clip_grad_norm_ computes them: scale = min(1, max_norm / (norm + 1e-6)). Both are computed
// in double and rounded when they are stored. If the norm is not finite, the scale is NaN. The next update
// then makes the parameters NaN, so that the run visibly diverges. A scale of max_norm / infinity = 0 would
// silently freeze most of the network. Padding in stored gradients is zero and adds nothing.

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/recipes.h"
#include "src/ops/cpu/sums.h"
#include "src/ops/loss_scaling.h"
#include "src/ops/standard_updates.h"

namespace vdnn::cpu {

namespace {

double clipping_scale(double norm, double max_norm) {
  if (!std::isfinite(norm)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return std::min(1.0, max_norm / (norm + 1e-6));
}

class GradientNormKernel final : public CpuKernel {
 public:
  GradientNormKernel(const Context& context, const GradientNormSpec& spec,
                     std::vector<std::uint64_t> elements)
      : threads_(context.threads), spec_(spec), elements_(std::move(elements)) {}

  void run(const OpOperands& operands, const StepScalars&) override {
    double sum = 0;
    for (std::size_t i = 0; i < elements_.size(); ++i) {
      const float* const gradient = read_pointer<float>(operands, i);
      sum += sum_terms(elements_[i], threads_, operands.workspace, [gradient](std::uint64_t element) {
        const auto value = static_cast<double>(gradient[element]);
        return value * value;
      });
    }
    const double norm = std::sqrt(sum);
    const auto max_norm = static_cast<double>(spec_.max_norm);
    if (spec_.loss_scaled) {
      *write_pointer<LossScaledNorm>(operands, 0) =
          ops::unscaled(norm, max_norm, *read_pointer<LossScale>(operands, elements_.size()));
      return;
    }
    float* const result = write_pointer<float>(operands, 0);
    result[0] = static_cast<float>(norm);
    result[1] = static_cast<float>(clipping_scale(norm, max_norm));
  }

 private:
  int threads_;
  GradientNormSpec spec_;
  std::vector<std::uint64_t> elements_;  // by gradient, including the padding of its storage layout
};

}  // namespace

OpRecipe make_gradient_norm_recipe(const GradientNormSpec& spec,
                                   std::span<const ParameterRecipe> parameters) {
  std::uint64_t workspace = 0;
  for (const ParameterRecipe& parameter : parameters) {
    workspace = std::max(workspace, sum_workspace_bytes(parameter.storage_bytes / sizeof(float)));
  }
  return ops::standard_gradient_norm(spec, parameters, own_algorithm(workspace));
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const GradientNormSpec& spec,
                                       const KernelRequest& request) {
  std::vector<std::uint64_t> elements;
  const std::size_t gradients = request.op.reads.size() - (spec.loss_scaled ? 1 : 0);
  for (const ValueId gradient : std::span(request.op.reads).first(gradients)) {
    elements.push_back(request.tape.value(gradient).bytes / sizeof(float));
  }
  return std::make_unique<GradientNormKernel>(context, spec, std::move(elements));
}

}  // namespace vdnn::cpu
