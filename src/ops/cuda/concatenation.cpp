// Concatenation of channels: each input is a table of places by its channels, copied into, or out of, some
// columns of a wider one.

#include "src/ops/cuda/copies.h"
#include "src/ops/cuda/layer_ops.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cuda {

namespace {

std::uint64_t channels_of(const TensorType& type) {
  return static_cast<std::uint64_t>(type.dims[1]);
}

}  // namespace

LayerRecipe make_recipe(const ConcatenationSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

OpKernel make_kernel(const ConcatenationSpec&, const KernelRequest& request) {
  std::vector<std::uint64_t> channels;
  for (const TensorType& input : request.op.layer_inputs) {
    channels.push_back(channels_of(input));
  }
  const std::uint64_t all = channels_of(request.op.layer_outputs[0]);
  const std::uint64_t places = request.op.layer_outputs[0].elements() / all;
  if (request.op.direction == Direction::kForward) {
    return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
      float* column = write_pointer<float>(operands, 0);
      for (std::size_t input = 0; input < channels.size(); ++input) {
        launch_copy(launcher, {read_pointer<float>(operands, input), channels[input]}, {column, all}, places,
                    channels[input]);
        column += channels[input];
      }
    };
  }
  const std::uint64_t own = channels.at(request.op.position);
  std::uint64_t before = 0;
  for (std::size_t input = 0; input < request.op.position; ++input) {
    before += channels[input];
  }
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    launch_copy(launcher, {read_pointer<float>(operands, 0) + before, all},
                {write_pointer<float>(operands, 0), own}, places, own);
  };
}

}  // namespace vdnn::cuda
