#pragma once
// Ops of vendors' libraries as parts of an op's kernel.

#include <memory>
#include <span>
#include <string>

#include "src/ops/cuda/launcher.h"
#include "src/ops/cuda/vendor_library.h"
#include "src/ops/recipes.h"
#include "vdnn/op_catalog.h"

namespace vdnn::cuda {

// Returns `made`. Throws DeviceError if `made` needs more workspace than the op's algorithm counts, less the
// `beside_bytes` that the op uses for other purposes.
std::shared_ptr<const VendorOp> within_algorithm(std::unique_ptr<VendorOp> made, const KernelRequest& request,
                                                 std::uint64_t beside_bytes = 0);

// `workspace`: at least the op's workspace_bytes().
void run_vendor_op(const VendorOp& op, std::span<const AddressRange> reads, const AddressRange& write,
                   const AddressRange& workspace, const Launcher& launcher);

// Throws InvalidArgument if a feature map of the layer has more elements than cuDNN's descriptors can index
// in 32 bits.
void require_indices_of_cudnn(const char* layer, const ops::LayerTypes& types);

// Gives every op of the layer a single algorithm of this name, which needs no workspace.
LayerRecipe with_algorithm(const std::string& name, LayerRecipe recipe);

// The kernel of an op that is one call of `made`, with all reads of the op and its only write.
OpKernel vendor_kernel(std::unique_ptr<VendorOp> made, const KernelRequest& request);

}  // namespace vdnn::cuda
