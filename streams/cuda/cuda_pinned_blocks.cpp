#include "streams/cuda/cuda_pinned_blocks.h"

#include "vdnn/size.h"

namespace vdnn {

CudaPinnedBlocks::CudaPinnedBlocks(CudaContext& context, std::uint64_t budget_bytes, std::optional<int> node)
    : context_(context),
      budget_bytes_(budget_bytes),
      node_(node),
      blocks_(context.owner(), budget_bytes, Mapping::Kind::kUntouched) {}

CudaPinnedBlocks::~CudaPinnedBlocks() {
  const CudaContext::Scope scope = context_.enter_anyway();
  for (const AddressRange block : blocks_.all()) {
    const CudaStatus unlocked = context_.api().host_unregister(block.begin);
    context_.forget(unlocked);
    if (unlocked != CudaStatus::kSuccess) {
      blocks_.leave_to_driver(block);
    }
  }
}

AddressRange CudaPinnedBlocks::take(std::uint64_t bytes) {
  const CudaContext::Scope scope = context_.enter();
  const AddressRange block = blocks_.take(bytes);
  if (node_) {
    prefer_node(block, *node_);
  }
  try {
    context_.check_memory(context_.api().host_register(block), "cudaHostRegister",
                          [&] { return MemoryShortage{.asked = bytes, .budget = budget_bytes_}; });
  } catch (...) {
    blocks_.give_back(block);
    throw;
  }
  return block;
}

void CudaPinnedBlocks::give_back(AddressRange block) {
  const CudaContext::Scope scope = context_.enter();
  blocks_.check(block);
  context_.check(context_.api().host_unregister(block.begin), "cudaHostUnregister",
                 [&] { return format_size(block.bytes); });
  blocks_.give_back(block);
}

}  // namespace vdnn
