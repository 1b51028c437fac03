#include "saved_tensor.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace vdnn::door {

namespace autograd = torch::autograd;

namespace {

// Keys of tensors that consist of more than sizes and strides over a storage, or that have no bytes
// (ZeroTensor, which forward-mode AD creates).
const c10::DispatchKeySet kMoreThanAStorage({c10::DispatchKey::Functionalize,
                                             c10::DispatchKey::FuncTorchGradWrapper,
                                             c10::DispatchKey::FuncTorchBatched,
                                             c10::DispatchKey::NestedTensor, c10::DispatchKey::ZeroTensor,
                                             c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});

}  // namespace

thread_local bool NoHooks::is_set_ = false;

TensorStashes::TensorStashes(const StashFunctions& functions, const vdnn_stash_options& options,
                             std::uint64_t min_bytes, const vdnn_door_pool& pool)
    : functions_(functions),
      options_(options),
      min_bytes_(min_bytes),
      pool_(pool),
      type_(options.device == VDNN_STASH_HOST ? c10::kCPU : c10::kCUDA) {}

DeviceStash* TensorStashes::stash_for(const at::Tensor& tensor) {
  if (!may_leave(tensor)) {
    return nullptr;
  }
  const c10::Device device = tensor.device();
  const std::lock_guard lock(mutex_);
  const int index = device.has_index() ? device.index() : 0;
  return &stashes_.try_emplace(index, functions_, options_, device, pool_).first->second;
}

DeviceStash* TensorStashes::stash_of(c10::DeviceIndex device) {
  const std::lock_guard lock(mutex_);
  const auto found = stashes_.find(device);
  return found == stashes_.end() ? nullptr : &found->second;
}

bool TensorStashes::may_leave(const at::Tensor& tensor) const {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (impl.is_python_dispatch() || !impl.has_storage() || impl.layout() != c10::kStrided ||
      impl.device_type() != type_ || impl.key_set().has_any(kMoreThanAStorage)) {
    return false;
  }
  if (static_cast<std::uint64_t>(tensor.nbytes()) < min_bytes_ || tensor.storage().nbytes() < min_bytes_ ||
      tensor.is_quantized()) {
    return false;
  }
  const auto is_parameter = [](const at::TensorBase& base) { return base.is_leaf() && base.requires_grad(); };
  return !is_parameter(tensor) && !(tensor.is_view() && is_parameter(tensor._base()));
}

SavedTensor::View::View(const at::Tensor& tensor)
    : keys(tensor.key_set() - c10::autograd_dispatch_keyset_with_ADInplaceOrView),
      type(tensor.dtype()),
      sizes(tensor.sizes().begin(), tensor.sizes().end()),
      strides(tensor.strides().begin(), tensor.strides().end()),
      offset(tensor.storage_offset()) {}

at::Tensor SavedTensor::View::of(c10::intrusive_ptr<c10::StorageImpl> storage) const {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)), keys, type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

SavedTensor::~SavedTensor() {
  if (block_ != nullptr) {
    stash_->drop(*block_);
  }
}

void SavedTensor::call_pack_hook(const at::Tensor& tensor) {
  remember(tensor);
  stash_ = stashes_.stash_for(tensor);
  if (stash_ != nullptr) {
    view_.emplace(tensor);
    const DeviceStash::Saved saved = stash_->save(tensor);
    block_ = saved.block;
    if (saved.has_notice) {
      stash_->log_notice();
    }
  }
  if (block_ == nullptr) {
    // As PyTorch saves it: a leaf itself, with its Python object; other tensors as an alias with the same
    // version counter, which avoids a reference cycle.
    kept_ = tensor.is_leaf() ? tensor : tensor.tensor_data();
  }
}

at::Tensor SavedTensor::call_unpack_hook() {
  if (current_version() != version_) {
    refuse_changed_tensor();
  }
  return block_ == nullptr ? kept_ : unpack_block();
}

at::Tensor SavedTensor::unpack_block() const {
  const c10::intrusive_ptr<c10::TensorImpl> leaf = is_leaf_ ? variable_.lock() : nullptr;
  at::Tensor tensor = view_->of(stash_->load(*block_));
  if (leaf) {  // a live leaf keeps its storage in place
    return at::Tensor(leaf);
  }
  // With the shared counter, the next reader detects an in-place change by this reader.
  autograd::impl::set_version_counter(tensor, block_->counter);
  return tensor;
}

#ifdef VDNN_HAS_RETRIEVE_UNPACK_HOOK_DATA
std::optional<std::pair<c10::SafePyObject, c10::SafePyObject>> SavedTensor::retrieve_unpack_hook_data()
    const {
  TORCH_CHECK(
      false,
      "vdnn.torch: compiled autograd cannot read tensors that C++ hooks have saved. Enable vdnn.torch with "
      "tier=\"python\", or run backward without compiled autograd.");
}
#endif

void SavedTensor::remember(const at::Tensor& tensor) {
  variable_ = c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr());
  is_leaf_ = tensor.is_leaf();
  version_ = static_cast<std::uint32_t>(tensor._version());
  output_ = static_cast<std::uint32_t>(tensor.output_nr());
  if (const autograd::AutogradMeta* meta = autograd::impl::get_autograd_meta(tensor)) {
    maker_ = WeakNodePointer(meta->grad_fn_);
  }
}

std::uint32_t SavedTensor::current_version() const {
  return block_ == nullptr ? autograd::impl::version_counter(kept_).current_version()
                           : block_->counter.current_version();
}

// The node that PyTorch's message names: for an output, the node that saved it; otherwise, the latest
// operation that produced the variable.
NodePointer SavedTensor::changed_by() const {
  NodePointer maker = maker_.lock();
  if (maker && maker == autograd::get_current_node()) {
    return maker;
  }
  const auto variable = variable_.lock();
  return variable ? at::Tensor(variable).grad_fn() : maker;
}

// Saves a tensor of the same description without hooks, and counts as many in-place changes on it as the
// saved tensor has had since. So PyTorch raises its own error.
void SavedTensor::refuse_changed_tensor() const {
  const NoHooks no_hooks;
  const at::NoGradGuard no_grad;
  at::Tensor described = block_ == nullptr ? kept_.tensor_data() : view_->of(block_->new_storage(0));
  autograd::impl::set_version_counter(described, c10::VariableVersion(version_));
  if (NodePointer maker = changed_by()) {
    autograd::impl::set_gradient_edge(described, autograd::Edge(std::move(maker), output_));
  }
  const autograd::SavedVariable saved(described, /*is_output=*/false);
  for (std::uint32_t version = version_; version != current_version(); ++version) {
    autograd::impl::bump_version(described);
  }
  saved.unpack();
  TORCH_INTERNAL_ASSERT(false, "PyTorch accepts a saved tensor that has changed");
}

}  // namespace vdnn::door
