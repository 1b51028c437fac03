#include "saved_tensor.h"

#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/variable.h>

#include <sstream>
#include <tuple>
#include <utility>

namespace vdnn::door {

namespace autograd = torch::autograd;

TensorStashes::TensorStashes(const StashFunctions& functions, const vdnn_stash_options& options,
                             std::uint64_t min_bytes)
    : functions_(functions),
      options_(options),
      min_bytes_(min_bytes),
      type_(options.device == VDNN_STASH_HOST ? c10::kCPU : c10::kCUDA) {}

DeviceStash* TensorStashes::stash_for(const at::Tensor& tensor) {
  if (!may_leave(tensor)) {
    return nullptr;
  }
  const c10::Device device = tensor.device();
  const std::lock_guard lock(mutex_);
  const int index = device.has_index() ? device.index() : 0;
  return &stashes_.try_emplace(index, functions_, options_, device).first->second;
}

DeviceStash* TensorStashes::stash_of(c10::DeviceIndex device) {
  const std::lock_guard lock(mutex_);
  const auto found = stashes_.find(device);
  return found == stashes_.end() ? nullptr : &found->second;
}

bool TensorStashes::may_leave(const at::Tensor& tensor) const {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (impl.is_python_dispatch() || !impl.has_storage() || impl.layout() != c10::kStrided ||
      impl.device_type() != type_ ||
      impl.key_set().has_any(
          c10::DispatchKeySet({c10::DispatchKey::Functionalize, c10::DispatchKey::FuncTorchGradWrapper,
                               c10::DispatchKey::FuncTorchBatched}))) {
    return false;
  }
  if (static_cast<std::uint64_t>(tensor.nbytes()) < min_bytes_ || tensor.storage().nbytes() < min_bytes_ ||
      tensor.is_quantized() || tensor.is_conj() || tensor.is_neg()) {
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
  if (stash_ == nullptr) {
    kept_ =
        tensor.tensor_data();  // as PyTorch saves outputs: no cycle of references, the same version counter
    return;
  }
  view_.emplace(tensor);
  block_ = &stash_->save(tensor);
}

at::Tensor SavedTensor::call_unpack_hook() {
  if (current_version() != version_) {
    refuse_changed_tensor();
  }
  return block_ == nullptr ? kept_ : view_->of(stash_->load(*block_));
}

std::optional<std::pair<c10::SafePyObject, c10::SafePyObject>> SavedTensor::retrieve_unpack_hook_data()
    const {
  TORCH_CHECK(
      false,
      "vdnn.torch: compiled autograd cannot read tensors that C++ hooks have saved. Enable vdnn.torch with "
      "tier=\"python\", or run backward without compiled autograd.");
}

void SavedTensor::remember(const at::Tensor& tensor) {
  variable_ = c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr());
  version_ = static_cast<std::uint32_t>(tensor._version());
  output_ = static_cast<std::uint32_t>(tensor.output_nr());
  if (const autograd::AutogradMeta* meta = autograd::impl::get_autograd_meta(tensor)) {
    maker_ = meta->grad_fn_.get();
  }
}

std::uint32_t SavedTensor::current_version() const {
  return block_ == nullptr ? autograd::impl::version_counter(kept_).current_version()
                           : block_->counter.current_version();
}

// Of an output PyTorch names the node that saved it, of an input the operation that made it last.
std::string SavedTensor::changed_by() const {
  const auto reader = autograd::get_current_node();
  if (reader && reader.get() == maker_) {
    return reader->name();
  }
  const auto variable = variable_.lock();
  if (!variable) {
    return {};
  }
  const at::Tensor tensor(variable);
  const auto maker = tensor.grad_fn();
  return maker ? maker->name() : std::string();
}

void SavedTensor::refuse_changed_tensor() const {
  const at::Tensor described =
      block_ == nullptr ? kept_
                        : view_->of(c10::make_intrusive<c10::StorageImpl>(
                              c10::StorageImpl::use_byte_size_t(), 0, block_->allocator, /*resizable=*/true));
  std::ostringstream message;
  message
      << "one of the variables needed for gradient computation has been modified by an inplace operation: ["
      << described.toString() << " " << described.sizes() << "]";
  if (const std::string name = changed_by(); !name.empty()) {
    message << ", which is output " << output_ << " of " << name << ",";
  }
  message << " is at version " << current_version() << "; expected version " << version_ << " instead.";
  if (autograd::AnomalyMode::is_enabled()) {
    message << " Hint: the backtrace further above shows the operation that failed to compute its gradient. "
               "The variable in "
               "question was changed in there or anywhere later. Good luck!";
  } else {
    message
        << " Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "
           "torch.autograd.set_detect_anomaly(True).";
  }
  TORCH_CHECK(false, message.str());
}

}  // namespace vdnn::door
