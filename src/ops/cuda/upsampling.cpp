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

template <template <class> class Forward, class Format>
OpKernel forward_kernel(const UpsamplingShape& shape, std::uint64_t elements) {
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    launcher.launch(Forward<Format>{.x = read_pointer<Stored<Format>>(operands, 0),
                                    .y = write_pointer<Stored<Format>>(operands, 0),
                                    .shape = shape,
                                    .elements = elements});
  };
}

template <class Format>
OpKernel gathering_kernel(const UpsamplingShape& shape, bool linear, std::uint64_t elements) {
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    launcher.launch(UpsampleBackward<Format>{.dy = read_pointer<Stored<Format>>(operands, 0),
                                             .dx = write_pointer<Stored<Format>>(operands, 0),
                                             .shape = shape,
                                             .linear = linear,
                                             .elements = elements});
  };
}

}  // namespace

LayerRecipe make_recipe(const UpsamplingSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

OpKernel make_kernel(const UpsamplingSpec& spec, const KernelRequest& request) {
  const UpsamplingShape shape = shape_of(spec, request.op.layer_inputs[0].dims);
  const bool linear = spec.mode == UpsamplingMode::kLinear;
  const TensorType& input = request.op.layer_inputs[0];
  return ops::with_format(input.data_type, [&]<class Format>(Format) {
    if (request.op.direction != Direction::kForward) {
      return gathering_kernel<Format>(shape, linear, input.elements());
    }
    const std::uint64_t elements = request.op.layer_outputs[0].elements();
    return linear ? forward_kernel<UpsampleLinear, Format>(shape, elements)
                  : forward_kernel<UpsampleNearest, Format>(shape, elements);
  });
}

}  // namespace vdnn::cuda
