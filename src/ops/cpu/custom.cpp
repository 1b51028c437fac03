// Layers from outside the library: they bring their recipe and run their own ops.

#include <utility>
#include <vector>

#include "src/ops/cpu/layer_ops.h"
#include "src/ops/standard_recipes.h"
#include "vdnn/custom_layer.h"

namespace vdnn::cpu {

namespace {

class CustomKernel final : public CpuKernel {
 public:
  CustomKernel(const Context& context, const CustomSpec& spec, const KernelRequest& request)
      : layer_(spec.layer),
        inputs_(request.op.layer_inputs),
        launch_{.direction = request.op.direction,
                .position = request.op.position,
                .algorithm = request.algorithm,
                .inputs = inputs_,
                .output = request.op.layer_outputs[0],
                .threads = context.threads} {}

  void run(const OpOperands& operands, const StepScalars& scalars) override {
    launch_.operands = operands;
    launch_.scalars = scalars;
    layer_->run(launch_);
  }

 private:
  std::shared_ptr<const CustomLayer> layer_;
  std::vector<TensorType> inputs_;
  CustomLaunch launch_;
};

}  // namespace

LayerRecipe make_recipe(const Context& context, const CustomSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::custom_recipe(spec, types, mode, "cpu", context.threads);
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const CustomSpec& spec,
                                       const KernelRequest& request) {
  return std::make_unique<CustomKernel>(context, spec, request);
}

}  // namespace vdnn::cpu
