// ReLU, sigmoid and addition, forward and backward.

#include "src/ops/cuda/copies.h"
#include "src/ops/cuda/layer_ops.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cuda {

namespace {

bool is_forward(const KernelRequest& request) {
  return request.op.direction == Direction::kForward;
}

std::uint64_t elements_of(const KernelRequest& request) {
  return request.op.layer_outputs[0].elements();
}

}  // namespace

LayerRecipe make_recipe(const ReluSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

OpKernel make_kernel(const ReluSpec& spec, const KernelRequest& request) {
  const float slope = spec.negative_slope;
  const std::uint64_t elements = elements_of(request);
  if (is_forward(request)) {
    return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
      launcher.launch(ReluForward{.x = read_pointer<float>(operands, 0),
                                  .y = write_pointer<float>(operands, 0),
                                  .slope = slope,
                                  .elements = elements});
    };
  }
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    launcher.launch(ReluBackward{.y = read_pointer<float>(operands, 0),
                                 .dy = read_pointer<float>(operands, 1),
                                 .dx = write_pointer<float>(operands, 0),
                                 .slope = slope,
                                 .elements = elements});
  };
}

LayerRecipe make_recipe(const SigmoidSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

OpKernel make_kernel(const SigmoidSpec&, const KernelRequest& request) {
  const std::uint64_t elements = elements_of(request);
  if (is_forward(request)) {
    return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
      launcher.launch(SigmoidForward{.x = read_pointer<float>(operands, 0),
                                     .y = write_pointer<float>(operands, 0),
                                     .elements = elements});
    };
  }
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    launcher.launch(SigmoidBackward{.y = read_pointer<float>(operands, 0),
                                    .dy = read_pointer<float>(operands, 1),
                                    .dx = write_pointer<float>(operands, 0),
                                    .elements = elements});
  };
}

LayerRecipe make_recipe(const ConversionSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

LayerRecipe make_recipe(const GradientScalingSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {.forward = own_algorithm(), .backward = {}});
}

LayerRecipe make_recipe(const LossScaleUpdateSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {.forward = own_algorithm(), .backward = {}});
}

LayerRecipe make_recipe(const AddSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

OpKernel make_kernel(const AddSpec&, const KernelRequest& request) {
  const std::uint64_t elements = elements_of(request);
  if (is_forward(request)) {
    return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
      launcher.launch(Addition{.a = read_pointer<float>(operands, 0),
                               .b = read_pointer<float>(operands, 1),
                               .sum = write_pointer<float>(operands, 0),
                               .elements = elements});
    };
  }
  return [](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    launch_copy(launcher, operands);
  };
}

}  // namespace vdnn::cuda
