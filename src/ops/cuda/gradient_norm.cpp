// The norm of all gradients together. Each launch sums several gradients, and a last launch adds up their
// sums.

#include <span>
#include <utility>
#include <vector>

#include "src/ops/cuda/layer_ops.h"
#include "src/ops/cuda/sums.h"
#include "src/ops/standard_updates.h"

namespace vdnn::cuda {

namespace {

// Layout of the workspace. `sizes`: stored elements of each gradient.
struct Layout {
  std::uint64_t blocks = 0;  // number of blocks for all gradients
  Sums<1>* sum;
  Sums<1>* partial;  // one per block

  Layout(Workspace& workspace, const std::vector<std::uint64_t>& sizes) : sum(workspace.take<Sums<1>>(1)) {
    for (const std::uint64_t size : sizes) {
      blocks += divide_up(size, kTermsPerPiece);
    }
    partial = workspace.take<Sums<1>>(blocks);
  }
};

void add(SquareSums& kernel, const float* gradient, std::uint64_t elements) {
  kernel.gradients[kernel.count++] = {
      .values = gradient, .elements = elements, .first_block = kernel.all_blocks};
  kernel.all_blocks += divide_up(elements, kTermsPerPiece);
}

void launch_square_sums(const Launcher& launcher, const OpOperands& operands,
                        const std::vector<std::uint64_t>& sizes, Sums<1>* partial) {
  SquareSums kernel{.gradients = {}, .sums = partial};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    add(kernel, read_pointer<float>(operands, i), sizes[i]);
    if (kernel.count == SquareSums::kMostGradients || i + 1 == sizes.size()) {
      launcher.launch(kernel);
      kernel = {.gradients = {}, .sums = kernel.sums + kernel.all_blocks};
    }
  }
}

// `sum`: the sum of all squares. The loss scale is the last read.
void launch_store(const Launcher& launcher, const OpOperands& operands, const GradientNormSpec& spec,
                  const Sums<1>* sum) {
  const auto max_norm = static_cast<double>(spec.max_norm);
  if (spec.loss_scaled) {
    launcher.launch(StoreLossScaledNorm{.sum = sum,
                                        .max_norm = max_norm,
                                        .scale = read_pointer<LossScale>(operands, operands.reads.size() - 1),
                                        .result = write_pointer<LossScaledNorm>(operands, 0)});
  } else {
    launcher.launch(StoreNorm{.sum = sum, .max_norm = max_norm, .result = write_pointer<float>(operands, 0)});
  }
}

}  // namespace

OpRecipe make_gradient_norm_recipe(const GradientNormSpec& spec,
                                   std::span<const ParameterRecipe> parameters) {
  std::vector<std::uint64_t> sizes;
  for (const ParameterRecipe& parameter : parameters) {
    sizes.push_back(parameter.storage_bytes / sizeof(float));
  }
  return ops::standard_gradient_norm(spec, parameters, own_algorithm(workspace_bytes<Layout>(sizes)));
}

OpKernel make_kernel(const GradientNormSpec& spec, const KernelRequest& request) {
  std::vector<std::uint64_t> sizes;
  const std::size_t gradients = request.op.reads.size() - (spec.loss_scaled ? 1 : 0);
  for (const ValueId gradient : std::span(request.op.reads).first(gradients)) {
    sizes.push_back(request.tape.value(gradient).bytes / sizeof(float));
  }
  return [sizes = std::move(sizes), spec](const OpOperands& operands, const StepScalars&,
                                          const Launcher& launcher) {
    Workspace workspace(operands.workspace.begin);
    const Layout layout(workspace, sizes);
    launch_square_sums(launcher, operands, sizes, layout.partial);
    launch_partial_sums(launcher, layout.partial, 1, layout.blocks, layout.sum);
    launch_store(launcher, operands, spec, layout.sum);
  };
}

}  // namespace vdnn::cuda
