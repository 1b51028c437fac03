// Custom layers, which a program defines outside the library. They submit their own work to the stream.

#include "src/ops/cuda/layer_ops.h"
#include "src/ops/custom_op.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cuda {

namespace {

constexpr const char* kDevice = "cuda";
constexpr int kThreads = 1;

}  // namespace

LayerRecipe make_recipe(const CustomSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::custom_recipe(spec, types, mode, kDevice, kThreads);
}

OpKernel make_kernel(const CustomSpec& spec, const KernelRequest& request) {
  return [op = ops::CustomOp(spec, request, kDevice, kThreads)](
             const OpOperands& operands, const StepScalars& scalars, const Launcher& launcher) {
    op.run(operands, scalars, launcher.stream());
  };
}

}  // namespace vdnn::cuda
