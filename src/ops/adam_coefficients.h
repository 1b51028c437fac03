#pragma once
// The coefficients of an Adam or AdamW step. They are the same for all elements, computed in double and
// rounded once. Each element is then updated in single precision, in the order of the following lines. There,
// t is step + 1, where steps that loss scaling has skipped do not count:
//
//   g = scale g                             if gradients are clipped or losses scaled
//   g = g + weight_decay w                  Adam
//   m = m + (1 - beta1) (g - m)
//   v = v + (1 - beta2) (g g - v)
//   w = w - (learning_rate weight_decay) w  AdamW
//   w = w - (learning_rate / (1 - beta1^t)) (m / (sqrt(v) (1 / sqrt(1 - beta2^t)) + epsilon))
//
// v never becomes negative, since (1 - beta2) v rounded is at most v. Padding, which is zero in parameter,
// gradient and states, stays zero: 0 / (0 + epsilon) = 0, since epsilon is positive.

#include <cmath>

#include "src/base/host_device.h"
#include "vdnn/op_operands.h"
#include "vdnn/op_spec.h"

namespace vdnn::ops {

struct AdamCoefficients {
  float gradient_decay = 0;   // of Adam
  float parameter_decay = 0;  // of AdamW
  float gain1 = 0;            // 1 - beta1
  float gain2 = 0;
  float step_size = 0;
  float root_scale = 0;  // the factor of sqrt(v): 1 / sqrt(1 - beta2^t)
  float epsilon = 0;

  AdamCoefficients() = default;
  VDNN_HOST_DEVICE AdamCoefficients(const AdamSpec& spec, const StepScalars& scalars)
      : gradient_decay(spec.decoupled ? 0 : spec.weight_decay),
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

}  // namespace vdnn::ops
