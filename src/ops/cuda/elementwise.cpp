// ReLU, sigmoid, addition and conversion, forward and backward.

#include "src/ops/cuda/copies.h"
#include "src/ops/cuda/layer_ops.h"
#include "src/ops/formats.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cuda {

namespace {

bool is_forward(const KernelRequest& request) {
  return request.op.direction == Direction::kForward;
}

std::uint64_t elements_of(const KernelRequest& request) {
  return request.op.layer_outputs[0].elements();
}

// Calls `compile` with the format of the layer's maps.
template <class Compile>
OpKernel in_its_format(const KernelRequest& request, const Compile& compile) {
  return ops::with_format(request.op.layer_outputs[0].data_type, compile);
}

template <class From, class To>
OpKernel conversion_kernel(std::uint64_t elements) {
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    if constexpr (std::is_same_v<From, To>) {
      launch_copy(launcher, operands);
    } else {
      launcher.launch(Conversion<From, To>{.from = read_pointer<Stored<From>>(operands, 0),
                                           .to = write_pointer<Stored<To>>(operands, 0),
                                           .elements = elements});
    }
  };
}

}  // namespace

LayerRecipe make_recipe(const ReluSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

OpKernel make_kernel(const ReluSpec& spec, const KernelRequest& request) {
  const float slope = spec.negative_slope;
  const std::uint64_t elements = elements_of(request);
  return in_its_format(request, [&]<class Format>(Format) -> OpKernel {
    if (is_forward(request)) {
      return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
        launcher.launch(ReluForward<Format>{.x = read_pointer<Stored<Format>>(operands, 0),
                                            .y = write_pointer<Stored<Format>>(operands, 0),
                                            .slope = slope,
                                            .elements = elements});
      };
    }
    return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
      launcher.launch(ReluBackward<Format>{.y = read_pointer<Stored<Format>>(operands, 0),
                                           .dy = read_pointer<Stored<Format>>(operands, 1),
                                           .dx = write_pointer<Stored<Format>>(operands, 0),
                                           .slope = slope,
                                           .elements = elements});
    };
  });
}

LayerRecipe make_recipe(const SigmoidSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

OpKernel make_kernel(const SigmoidSpec&, const KernelRequest& request) {
  const std::uint64_t elements = elements_of(request);
  return in_its_format(request, [&]<class Format>(Format) -> OpKernel {
    if (is_forward(request)) {
      return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
        launcher.launch(SigmoidForward<Format>{.x = read_pointer<Stored<Format>>(operands, 0),
                                               .y = write_pointer<Stored<Format>>(operands, 0),
                                               .elements = elements});
      };
    }
    return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
      launcher.launch(SigmoidBackward<Format>{.y = read_pointer<Stored<Format>>(operands, 0),
                                              .dy = read_pointer<Stored<Format>>(operands, 1),
                                              .dx = write_pointer<Stored<Format>>(operands, 0),
                                              .elements = elements});
    };
  });
}

LayerRecipe make_recipe(const ConversionSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

// The backward pass converts the gradient back to the type of X.
OpKernel make_kernel(const ConversionSpec&, const KernelRequest& request) {
  const DataType input = request.op.layer_inputs[0].data_type;
  const DataType output = request.op.layer_outputs[0].data_type;
  return ops::with_format(is_forward(request) ? input : output, [&]<class From>(From) {
    return ops::with_format(is_forward(request) ? output : input,
                            [&]<class To>(To) { return conversion_kernel<From, To>(elements_of(request)); });
  });
}

LayerRecipe make_recipe(const AddSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

OpKernel make_kernel(const AddSpec&, const KernelRequest& request) {
  const std::uint64_t elements = elements_of(request);
  if (!is_forward(request)) {
    return [](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
      launch_copy(launcher, operands);
    };
  }
  return in_its_format(request, [&]<class Format>(Format) -> OpKernel {
    return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
      launcher.launch(Addition<Format>{.a = read_pointer<Stored<Format>>(operands, 0),
                                       .b = read_pointer<Stored<Format>>(operands, 1),
                                       .sum = write_pointer<Stored<Format>>(operands, 0),
                                       .elements = elements});
    };
  });
}

}  // namespace vdnn::cuda
