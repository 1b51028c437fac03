// Custom layers, which a program defines outside the library. They have their own recipes and run their own
// ops.

#include "src/ops/cpu/layer_ops.h"
#include "src/ops/custom_op.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cpu {

namespace {

constexpr const char* kDevice = "cpu";

class CustomKernel final : public CpuKernel {
 public:
  explicit CustomKernel(const ops::CustomOp& op) : op_(op) {}

  void run(const OpOperands& operands, const StepScalars& scalars) override {
    op_.run(operands, scalars, nullptr);
  }

 private:
  ops::CustomOp op_;
};

}  // namespace

LayerRecipe make_recipe(const Context& context, const CustomSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::custom_recipe(spec, types, mode, kDevice, context.threads);
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const CustomSpec& spec,
                                       const KernelRequest& request) {
  return std::make_unique<CustomKernel>(ops::CustomOp(spec, request, kDevice, context.threads));
}

}  // namespace vdnn::cpu
