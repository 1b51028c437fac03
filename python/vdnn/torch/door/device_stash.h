#pragma once
// The contract of vdnn/stash.h in PyTorch's terms: storages, versions and current streams.
//
// A block is a storage at one version that tensors were saved of. Identity is a weak reference to the
// storage: while a block holds it, PyTorch gives the address of the StorageImpl to no other storage, so that
// (address, version) names the contents for as long as the handle lives.
//
// A storage may belong to Python, whose lock its destructor takes, and a thread that has Python's lock may
// wait for the lock here. Therefore no storage is let go of while the lock is held: see `Trash`.

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "door.h"
#include "stash_functions.h"

namespace vdnn::door {

struct Block {
  Block(vdnn_stash_handle handle, const at::Tensor& tensor);

  bool is_unchanged() const { return counter.current_version() == version; }
  // The source, if somebody besides this block holds it; else null.
  c10::intrusive_ptr<c10::StorageImpl> held_by_others() const;
  // Of the same device and allocator.
  c10::intrusive_ptr<c10::StorageImpl> new_storage(std::uint64_t size_bytes) const;

  vdnn_stash_handle handle;
  c10::weak_intrusive_ptr<c10::StorageImpl> weak;
  c10::intrusive_ptr<c10::StorageImpl> source;  // until it is released
  c10::intrusive_ptr<c10::StorageImpl> target;  // while its contents are back
  void* target_stream = nullptr;                // on which it was allocated
  c10::Allocator* allocator;
  std::uint64_t bytes;
  c10::VariableVersion counter;  // holds no storage
  std::uint32_t version;
  std::uint64_t users = 0;
};

class DeviceStash {
 public:
  // Throws c10::Error if the stash cannot be made.
  DeviceStash(const StashFunctions& functions, const vdnn_stash_options& options, c10::Device device,
              const vdnn_door_pool& pool);

  struct Saved {
    Block& block;  // lives until drop() was called as often as save()
    bool has_notice;
  };
  Saved save(const at::Tensor& tensor);
  // The contents of a block, for what the current stream is given next.
  c10::intrusive_ptr<c10::StorageImpl> load(Block& block);
  void drop(Block& block);
  // Logs what the stash has to tell its user. No lock may be held that a holder of Python's lock waits for.
  void log_notice();

  vdnn_stash* get() const { return stash_; }

 private:
  // Storages that are let go of when the lock has been given back.
  using Trash = std::vector<c10::intrusive_ptr<c10::StorageImpl>>;

  void check(vdnn_status status) const;
  void* current_stream() const;
  std::uint64_t bytes_in_use() const;
  // vdnn's pool keeps a block from its next user until the offload stream has read it, so that what leaves is
  // let go of at once. Other memory is held.
  void release_at_put(Block& block, std::uint32_t answer, Trash& trash);
  Block& put(const at::Tensor& tensor, std::uint32_t& answer);
  // What a put's answer asks for. The answers to all of it.
  std::uint32_t follow(std::uint32_t answer, void* stream, Trash& trash);
  std::uint32_t let_leave(void* stream, Trash& trash);
  void release(void* stream, Trash& trash);
  void fetch(Block& reading, void* stream);

  const StashFunctions& functions_;
  c10::Device device_;
  const vdnn_door_pool pool_;
  bool tells_bytes_ = false;
  void* offload_stream_ = nullptr;  // if sources are released at put
  vdnn_stash* stash_ = nullptr;
  std::mutex mutex_;
  std::unordered_map<vdnn_stash_handle, Block> blocks_;
};

}  // namespace vdnn::door
