// Dropout. Both passes use the same kernel. In inference the op is a copy.

#include "src/ops/cuda/copies.h"
#include "src/ops/cuda/layer_ops.h"
#include "src/ops/cuda/step_numbers.h"
#include "src/ops/formats.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cuda {

namespace {

// The name distinguishes the op of inference from the op of training, since both have the same operands.
constexpr const char* kCopyAlgorithm = "copy";

template <class Format>
OpKernel dropping_kernel(const DropoutSpec& spec, const TensorType& type) {
  const auto samples = static_cast<std::uint64_t>(type.dims[0]);
  const std::uint64_t sample_elements = type.elements() / samples;
  const std::uint64_t sample_packs = divide_up(sample_elements, Dropout<Format>::kPackElements);
  const auto scale = static_cast<float>(1 / (1 - static_cast<double>(spec.probability)));
  return [=](const OpOperands& operands, const StepScalars& scalars, const Launcher& launcher) {
    launcher.launch(Dropout<Format>{.x = read_pointer<Stored<Format>>(operands, 0),
                                    .y = write_pointer<Stored<Format>>(operands, 0),
                                    .spec = spec,
                                    .step = per_step(operands, &StepNumbers::scalars, scalars),
                                    .scale = scale,
                                    .sample_elements = sample_elements,
                                    .sample_packs = Divisor(sample_packs),
                                    .elements = samples * sample_packs});
  };
}

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
  return ops::with_format(request.op.layer_inputs[0].data_type, [&]<class Format>(Format) {
    return dropping_kernel<Format>(spec, request.op.layer_inputs[0]);
  });
}

}  // namespace vdnn::cuda
