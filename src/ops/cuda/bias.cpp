#include "src/ops/cuda/bias.h"

#include "src/ops/cuda/column_sums.h"

namespace vdnn::cuda {

namespace {

struct GradientLayout {
  ColumnSums<BiasTerm> kernel;
  Sums<1>* sums;

  GradientLayout(Workspace& workspace, const TensorType& type)
      : kernel(column_sums(BiasTerm{}, one_sample(type), nullptr)),
        sums(workspace.take<Sums<1>>(kernel.channels)) {
    kernel.sums = workspace.take<Sums<1>>(kernel.channels * kernel.pieces());
  }
};

}  // namespace

void launch_bias(const Launcher& launcher, const TensorType& type, const float* x, const float* bias,
                 float* y) {
  launcher.launch(BiasAddition{.x = x,
                               .bias = bias,
                               .y = y,
                               .channels = Divisor(static_cast<std::uint64_t>(type.dims[1])),
                               .elements = type.elements()});
}

std::uint64_t bias_gradient_bytes(const TensorType& type) {
  return workspace_bytes<GradientLayout>(type);
}

void launch_bias_gradient(const Launcher& launcher, const TensorType& type, const float* dy, float* gradient,
                          const AddressRange& workspace) {
  Workspace arrays(workspace.begin);
  GradientLayout layout(arrays, type);
  layout.kernel.term.dy = dy;
  launcher.launch(layout.kernel);
  launch_partial_sums(launcher, layout.kernel.sums, layout.kernel.channels, layout.kernel.pieces(),
                      layout.sums);
  launcher.launch(RoundSums{.sums = layout.sums, .rounded = gradient, .elements = layout.kernel.channels});
}

}  // namespace vdnn::cuda
