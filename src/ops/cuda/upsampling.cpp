// Upsampling by whole factors.

#include "src/ops/cuda/layer_ops.h"
#include "src/ops/formats.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cuda {

namespace {

UpsamplingShape shape_of(const UpsamplingSpec& spec, const Dims& input) {
  UpsamplingShape shape{.channels = Divisor(static_cast<std::uint64_t>(input[1])), .axes = {}};
  const std::size_t missing = 3 - spec.factors.size();
  for (std::size_t i = 0; i < spec.factors.size(); ++i) {
    const auto extent = static_cast<std::uint64_t>(input[i + 2]);
    const auto factor = static_cast<std::uint64_t>(spec.factors[i]);
    shape.axes[missing + i] = {
        .extent = Divisor(extent), .output = Divisor(extent * factor), .factor = Divisor(factor)};
  }
  return shape;
}

// `Upsample` is the kernel of a mode, and `Format` the format of its maps.
template <class Upsample, class Format>
void launch_forward(const Launcher& launcher, const OpOperands& operands, const UpsamplingShape& shape) {
  launcher.launch(Upsample{.x = read_pointer<Stored<Format>>(operands, 0),
                           .y = write_pointer<Stored<Format>>(operands, 0),
                           .shape = shape,
                           .elements = operands.writes[0].bytes / sizeof(Stored<Format>)});
}

template <class Format>
void launch_backward(const Launcher& launcher, const OpOperands& operands, const UpsamplingShape& shape,
                     bool linear) {
  launcher.launch(UpsampleBackward<Format>{.dy = read_pointer<Stored<Format>>(operands, 0),
                                           .dx = write_pointer<Stored<Format>>(operands, 0),
                                           .shape = shape,
                                           .linear = linear,
                                           .elements = operands.writes[0].bytes / sizeof(Stored<Format>)});
}

}  // namespace

LayerRecipe make_recipe(const UpsamplingSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

OpKernel make_kernel(const UpsamplingSpec& spec, const KernelRequest& request) {
  const UpsamplingShape shape = shape_of(spec, request.op.layer_inputs[0].dims);
  const bool linear = spec.mode == UpsamplingMode::kLinear;
  const DataType type = request.op.layer_inputs[0].data_type;
  const bool forward = request.op.direction == Direction::kForward;
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    ops::with_format(type, [&]<class Format>(Format) {
      if (!forward) {
        launch_backward<Format>(launcher, operands, shape, linear);
      } else if (linear) {
        launch_forward<UpsampleLinear<Format>, Format>(launcher, operands, shape);
      } else {
        launch_forward<UpsampleNearest<Format>, Format>(launcher, operands, shape);
      }
    });
  };
}

}  // namespace vdnn::cuda
