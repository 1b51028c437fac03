#include "src/ops/cuda/bias.h"

#include "src/ops/cuda/column_sums.h"
#include "src/ops/formats.h"

namespace vdnn::cuda {

namespace {

template <class Format>
struct BiasGradientLayout {
  BiasGradient<Format> kernel;
  Sums<1>* sums;

  BiasGradientLayout(Workspace& workspace, const TensorType& type)
      : kernel(column_sums(BiasTerm<Format>{}, one_sample(type), nullptr)),
        sums(workspace.take<Sums<1>>(kernel.channels)) {
    kernel.sums = workspace.take<Sums<1>>(kernel.channels * kernel.pieces());
  }
};

}  // namespace

void launch_bias(const Launcher& launcher, const TensorType& type, const void* x, const float* bias,
                 void* y) {
  ops::with_format(type.data_type, [&]<class Format>(Format) {
    launcher.launch(BiasAddition<Format>{.x = static_cast<const Stored<Format>*>(x),
                                         .bias = bias,
                                         .y = static_cast<Stored<Format>*>(y),
                                         .channels = Divisor(static_cast<std::uint64_t>(type.dims[1])),
                                         .elements = type.elements()});
  });
}

// The workspace has the same size for all formats, since sums are in double.
std::uint64_t bias_gradient_bytes(const TensorType& type) {
  return workspace_bytes<BiasGradientLayout<Fp32>>(type);
}

void launch_bias_gradient(const Launcher& launcher, const TensorType& type, const void* dy, float* gradient,
                          const AddressRange& workspace) {
  ops::with_format(type.data_type, [&]<class Format>(Format) {
    Workspace arrays(workspace.begin);
    BiasGradientLayout<Format> layout(arrays, type);
    layout.kernel.term.dy = static_cast<const Stored<Format>*>(dy);
    launcher.launch(layout.kernel);
    launch_partial_sums(launcher, layout.kernel.sums, layout.kernel.channels, layout.kernel.pieces(),
                        layout.sums);
    launcher.launch(RoundSums{.sums = layout.sums, .rounded = gradient, .elements = layout.kernel.channels});
  });
}

}  // namespace vdnn::cuda
