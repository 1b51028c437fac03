// Dropout: both passes are one kernel; in inference it is a copy.

#include "src/ops/cuda/copies.h"
#include "src/ops/cuda/layer_ops.h"
#include "src/ops/cuda/step_numbers.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cuda {

namespace {

// What the one op of inference is told by, whose operands are those of training.
constexpr const char* kCopyAlgorithm = "copy";

}  // namespace

LayerRecipe make_recipe(const DropoutSpec& spec, const LayerTypes& types, Mode mode) {
  if (mode == Mode::kInference) {
    return ops::standard_recipe(spec, types, mode, {.forward = {{.name = kCopyAlgorithm}}});
  }
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

OpKernel make_kernel(const DropoutSpec& spec, const KernelRequest& request) {
  if (request.op.algorithms[request.algorithm].name == kCopyAlgorithm) {
    return [](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
      launch_copy(launcher, operands);
    };
  }
  const TensorType& type = request.op.layer_inputs[0];
  const auto samples = static_cast<std::uint64_t>(type.dims[0]);
  const std::uint64_t sample_elements = type.elements() / samples;
  const std::uint64_t pairs = divide_up(sample_elements, 2);
  const auto scale = static_cast<float>(1 / (1 - static_cast<double>(spec.probability)));
  return [=](const OpOperands& operands, const StepScalars& scalars, const Launcher& launcher) {
    launcher.launch(Dropout{.x = read_pointer<float>(operands, 0),
                            .y = write_pointer<float>(operands, 0),
                            .spec = spec,
                            .step = per_step(operands, &StepNumbers::scalars, scalars),
                            .scale = scale,
                            .sample_elements = sample_elements,
                            .sample_pairs = Divisor(pairs),
                            .elements = samples * pairs});
  };
}

}  // namespace vdnn::cuda
