#pragma once
// The hooks of one saved tensor, without Python. PyTorch creates one such object for each tensor that
// autograd saves.
//
// Hooks disable PyTorch's check that a saved tensor has not been changed in place. So these hooks check this
// themselves, with PyTorch's messages. They keep the version counter, which holds no storage. The message
// names the operation that changed the tensor. To find that operation, the hooks hold a weak reference to the
// variable.

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "device_stash.h"

namespace vdnn::door {

// A pointer to a node of the graph, whose type differs between versions of PyTorch.
using NodePointer = decltype(torch::autograd::get_current_node());
template <class Pointer>
struct WeakPointer;
template <class Node>
struct WeakPointer<std::shared_ptr<Node>> {
  using type = std::weak_ptr<Node>;
};
template <class Node>
struct WeakPointer<c10::intrusive_ptr<Node>> {
  using type = c10::weak_intrusive_ptr<Node>;
};
using WeakNodePointer = WeakPointer<NodePointer>::type;

// While an object lives, tensors that this thread saves pass through no hooks.
class NoHooks {
 public:
  NoHooks() { is_set_ = true; }
  ~NoHooks() { is_set_ = false; }
  NoHooks(const NoHooks&) = delete;
  NoHooks& operator=(const NoHooks&) = delete;
  static bool is_set() { return is_set_; }

 private:
  static thread_local bool is_set_;
};

// Decides which tensors may leave, and owns the stashes of their devices. Thread-safe; lives as long as the
// process.
class TensorStashes {
 public:
  TensorStashes(const StashFunctions& functions, const vdnn_stash_options& options, std::uint64_t min_bytes,
                const vdnn_door_pool& pool);

  // The stash for the tensor; null if the tensor stays on its device.
  DeviceStash* stash_for(const at::Tensor& tensor);
  // The device's stash; null if the device has none yet.
  DeviceStash* stash_of(c10::DeviceIndex device);

 private:
  bool may_leave(const at::Tensor& tensor) const;

  const StashFunctions& functions_;
  vdnn_stash_options options_;
  std::uint64_t min_bytes_;
  vdnn_door_pool pool_;
  c10::DeviceType type_;
  std::mutex mutex_;
  std::unordered_map<int, DeviceStash> stashes_;
};

class SavedTensor final : public torch::autograd::SavedVariableHooks {
 public:
  explicit SavedTensor(TensorStashes& stashes) : stashes_(stashes) {}
  ~SavedTensor() override;

  void call_pack_hook(const at::Tensor& tensor) override;
  at::Tensor call_unpack_hook() override;
#ifdef VDNN_HAS_RETRIEVE_UNPACK_HOOK_DATA  // this PyTorch's compiled autograd calls this
  std::optional<std::pair<c10::SafePyObject, c10::SafePyObject>> retrieve_unpack_hook_data() const override;
#endif

 private:
  // The tensor's sizes, strides and offset in its storage.
  struct View {
    explicit View(const at::Tensor& tensor);
    at::Tensor of(c10::intrusive_ptr<c10::StorageImpl> storage) const;

    c10::DispatchKeySet keys;
    caffe2::TypeMeta type;
    c10::SmallVector<std::int64_t, 5> sizes;
    c10::SmallVector<std::int64_t, 5> strides;
    std::int64_t offset;
  };

  void remember(const at::Tensor& tensor);
  at::Tensor unpack_block() const;
  std::uint32_t current_version() const;
  [[noreturn]] void refuse_changed_tensor() const;
  NodePointer changed_by() const;

  TensorStashes& stashes_;
  // Either the tensor itself, if it stays on its device, or a view of a block.
  at::Tensor kept_;
  std::optional<View> view_;
  DeviceStash* stash_ = nullptr;
  Block* block_ = nullptr;
  // The saved variable. If it is a leaf and still alive, a reader gets it itself instead of a view of the
  // block.
  c10::weak_intrusive_ptr<c10::TensorImpl> variable_{c10::intrusive_ptr<c10::TensorImpl>()};
  bool is_leaf_ = false;
  // For the message of the version check.
  WeakNodePointer maker_{NodePointer()};
  std::uint32_t output_ = 0;
  std::uint32_t version_ = 0;
};

}  // namespace vdnn::door
