#pragma once
// Vendors' ops as parts of an op's kernel.

#include <memory>
#include <span>
#include <string>

#include "src/ops/cuda/launcher.h"
#include "src/ops/cuda/vendor_library.h"
#include "src/ops/recipes.h"
#include "vdnn/op_catalog.h"

namespace vdnn::cuda {

// Throws DeviceError where it wants more workspace than the op's algorithm counts; `beside_bytes` of that are
// somebody else's.
std::shared_ptr<const VendorOp> within_algorithm(std::unique_ptr<VendorOp> made, const KernelRequest& request,
                                                 std::uint64_t beside_bytes = 0);

// `workspace`: the op's, of which it takes what it wants.
void run_vendor_op(const VendorOp& op, std::span<const AddressRange> reads, const AddressRange& write,
                   const AddressRange& workspace, const Launcher& launcher);

// Throws InvalidArgument where a feature map of the layer has more elements than cuDNN's descriptors, which
// index in 32 bits, can tell apart.
void require_indices_of_cudnn(const char* layer, const ops::LayerTypes& types);

// Every op of the layer by an algorithm of this name, without workspace.
LayerRecipe with_algorithm(const std::string& name, LayerRecipe recipe);

// An op that is one call: all reads, the only write.
OpKernel vendor_kernel(std::unique_ptr<VendorOp> made, const KernelRequest& request);

}  // namespace vdnn::cuda
