#include "src/stash/tensor_table.h"

namespace vdnn::stash {

TensorTable::Added TensorTable::add(const SavedTensor& saved) {
  const StashHandle handle = last_handle_ + 1;
  by_contents_.emplace(saved.contents, handle);
  try {
    StashedTensor& tensor = tensors_[handle];
    tensor.saved = saved;
    last_handle_ = handle;
    return {.handle = handle, .tensor = tensor};
  } catch (...) {
    by_contents_.erase(saved.contents);
    throw;
  }
}

void TensorTable::take_back(StashHandle latest) noexcept {
  remove(latest);
  --last_handle_;
}

TensorTable::Node TensorTable::remove(StashHandle handle) {
  Node node = tensors_.extract(handle);
  by_contents_.erase(node.mapped().saved.contents);
  return node;
}

}  // namespace vdnn::stash
