#include "src/ops/cuda/vendor_kernel.h"

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn::cuda {

using vdnn::to_string;  // of a shape

std::shared_ptr<const VendorOp> within_algorithm(std::unique_ptr<VendorOp> made, const KernelRequest& request,
                                                 std::uint64_t beside_bytes) {
  const Algorithm& algorithm = request.op.algorithms.at(request.algorithm);
  const std::uint64_t wanted = checked_add(made->workspace_bytes(), beside_bytes);
  if (wanted > algorithm.workspace_bytes) {
    throw DeviceError("op '" + request.op.name + "': " + algorithm.name + " needs " + std::to_string(wanted) +
                      " bytes of workspace on this device, but " + std::to_string(algorithm.workspace_bytes) +
                      " were planned");
  }
  return made;
}

void run_vendor_op(const VendorOp& op, std::span<const AddressRange> reads, const AddressRange& write,
                   const AddressRange& workspace, const Launcher& launcher) {
  op.run({.reads = reads,
          .write = write,
          .workspace = {.begin = workspace.begin, .bytes = op.workspace_bytes()}},
         launcher.stream());
}

void require_indices_of_cudnn(const char* layer, const ops::LayerTypes& types) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();
  for (const std::span<const TensorType>& maps : {types.inputs, types.outputs}) {
    for (const TensorType& map : maps) {
      if (map.elements() > kMost) {
        throw InvalidArgument(std::string(layer) + ": " + to_string(map.dims) + " has " +
                              std::to_string(map.elements()) + " elements; cuDNN indexes " +
                              std::to_string(kMost) + " at most");
      }
    }
  }
}

LayerRecipe with_algorithm(const std::string& name, LayerRecipe recipe) {
  for (std::vector<OpRecipe>* pass : {&recipe.forward, &recipe.backward}) {
    for (OpRecipe& op : *pass) {
      op.algorithms = {{.name = name}};
    }
  }
  return recipe;
}

OpKernel vendor_kernel(std::unique_ptr<VendorOp> made, const KernelRequest& request) {
  return [op = within_algorithm(std::move(made), request)](const OpOperands& operands, const StepScalars&,
                                                           const Launcher& launcher) {
    run_vendor_op(*op, operands.reads, operands.writes[0], operands.workspace, launcher);
  };
}

}  // namespace vdnn::cuda
