// Adam and AdamW over a parameter as it is stored. Of each element, in single precision and in this order,
// with t = step + 1 and what does not depend on the element computed in double and rounded once:
//
//   g = scale g                             where gradients are clipped
//   g = g + weight_decay w                  Adam
//   m = m + (1 - beta1) (g - m)
//   v = v + (1 - beta2) (g g - v)
//   w = w - (learning_rate weight_decay) w  AdamW
//   w = w - (learning_rate / (1 - beta1^t)) (m / (sqrt(v) (1 / sqrt(1 - beta2^t)) + epsilon))
//
// v stays at zero or above: (1 - beta2) v rounded is no more than v. Padding, zero in parameter, gradient and
// states, stays zero, since epsilon is not: 0 / (0 + epsilon) = 0.

#include <cmath>

#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/loops.h"
#include "src/ops/cpu/recipes.h"
#include "src/ops/standard_updates.h"

namespace vdnn::cpu {

namespace {

// The same for all elements of one step.
struct Coefficients {
  float scale = 1;
  float gradient_decay = 0;   // of Adam
  float parameter_decay = 0;  // of AdamW
  float gain1 = 0;            // 1 - beta1
  float gain2 = 0;
  float step_size = 0;
  float root_scale = 0;  // of sqrt(v)
  float epsilon = 0;

  Coefficients(const AdamSpec& spec, const StepScalars& scalars, float clipping_scale)
      : scale(clipping_scale),
        gradient_decay(spec.decoupled ? 0 : spec.weight_decay),
        gain1(1 - spec.beta1),
        gain2(1 - spec.beta2),
        epsilon(spec.epsilon) {
    const double steps = static_cast<double>(scalars.step) + 1;
    const auto learning_rate = static_cast<double>(scalars.learning_rate);
    if (spec.decoupled) {
      parameter_decay = static_cast<float>(learning_rate * static_cast<double>(spec.weight_decay));
    }
    step_size = static_cast<float>(learning_rate / (1 - std::pow(static_cast<double>(spec.beta1), steps)));
    root_scale = static_cast<float>(1 / std::sqrt(1 - std::pow(static_cast<double>(spec.beta2), steps)));
  }
};

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
    const Coefficients c(spec_, scalars, clipped_ ? read_pointer<float>(operands, 4)[1] : 1.0F);
    for_each_range(elements_, threads_, [=](std::uint64_t begin, std::uint64_t end) {
#pragma omp simd
      for (std::uint64_t i = begin; i < end; ++i) {
        const float gradient = c.scale * g[i] + c.gradient_decay * w[i];
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
