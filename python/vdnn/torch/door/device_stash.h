#pragma once
// Follows the contract of vdnn/stash.h for one device, in PyTorch's terms: storages, versions and current
// streams.
//
// A block is a storage at one version, with the tensors that autograd has saved over it. A weak reference to
// the storage identifies it. While a block holds this reference, PyTorch does not reuse the address of the
// StorageImpl, so (address, version) identifies the contents as long as the handle lives.
//
// Autograd also saves tensors without a history: buffers, frozen parameters, inputs and masks. Operations
// update some of these tensors without counting a version: batch normalisation, for example, updates its
// running statistics. A copy would race with such an update. Holders distinguish these tensors: a module
// holds its buffers, while only the graph holds a mask once its operation has returned. Therefore a tensor
// without a history is deferred: it is put at a later save, once nobody else holds its storage, or never. So
// modules need not be inspected, and buffers that are replaced, moved to another device or held by
// TorchScript also stay on the device. A deferred tensor is checked again whenever its age has grown by a
// quarter, so the number of checks is logarithmic in the step's saves.
//
// Without hooks, a program need not tell the allocator (record_stream()) which streams save a tensor, since
// the graph holds the tensor until backward. With hooks, a tensor that leaves is freed in the middle of the
// forward pass. Therefore this class tells the allocator which streams have saved the tensor.
//
// Two tensors over one storage may have version counters of their own (`.data`), so that equal versions do
// not mean equal contents. A block is for tensors with one counter. A tensor with another counter is not put:
// it stays as PyTorch saves it.
//
// Storages are freed when the lock of this class has been released, since freeing one may take long
// (`Trash`).

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "door.h"
#include "recent_peak.h"
#include "stash_functions.h"

namespace vdnn::door {

struct BlockIdentity {
  const c10::StorageImpl* storage;
  std::uint32_t version;
  friend bool operator==(const BlockIdentity&, const BlockIdentity&) = default;
};
struct HashOfBlockIdentity {
  std::size_t operator()(const BlockIdentity& identity) const {
    return std::hash<const void*>()(identity.storage) ^ identity.version;
  }
};

struct Block {
  // `stream`: the stream whose work so far produces the tensor.
  Block(const at::Tensor& tensor, void* stream);

  bool is_unchanged() const { return counter.current_version() == version; }
  // Whether changes of the tensor count as changes of the block.
  bool has_counter_of(const at::Tensor& tensor) const;
  // The source, if others than this block hold it; else null.
  c10::intrusive_ptr<c10::StorageImpl> held_by_others() const;
  bool is_held_by_others() const;
  // A new storage on the same device, from the same allocator.
  c10::intrusive_ptr<c10::StorageImpl> new_storage(std::uint64_t size_bytes) const;

  vdnn_stash_handle handle = 0;  // 0: not put yet
  c10::weak_intrusive_ptr<c10::StorageImpl> weak;
  c10::intrusive_ptr<c10::StorageImpl> source;  // until it is released
  c10::intrusive_ptr<c10::StorageImpl> target;  // while the contents are back
  void* target_stream = nullptr;                // the stream on which the target was allocated
  c10::Allocator* allocator;
  std::uint64_t bytes;
  std::uint64_t signature;
  void* stream;
  c10::VariableVersion counter;  // holds no storage
  std::uint32_t version;
  std::uint64_t users = 0;                  // saves that have not been dropped
  std::uint64_t puts = 0;                   // saves that the stash knows: all of `users`, or none
  std::uint64_t saved_at = 0;               // for a deferred block: the number of saves when it was saved
  c10::SmallVector<c10::Stream, 1> savers;  // GPU streams that saved the block's tensors
  bool leaves = false;                      // whether the block is leaving, or has left
  std::uint64_t look_at = 0;                // the save at which the block is checked next; 0: not deferred
  bool is_watched = false;                  // whether to tell the stash when nobody else holds it any more
};

// A block that others hold. It is removed once the stash has been told that nobody else holds the block any
// more. A look is a pass over the watched blocks.
struct Watched {
  Block* block;
  std::uint64_t since;    // the look at which the watch began
  std::uint64_t look_at;  // the look at which the block is checked next
};

class DeviceStash {
 public:
  // Throws c10::Error if the stash cannot be created.
  DeviceStash(const StashFunctions& functions, const vdnn_stash_options& options, c10::Device device,
              const vdnn_door_pool& pool);

  struct Saved {
    Block* block;  // valid until drop() has been called as often as save(); null: the tensor must stay
    bool has_notice;
  };
  Saved save(const at::Tensor& tensor);
  // Returns the contents of a block, for the next work of the current stream.
  c10::intrusive_ptr<c10::StorageImpl> load(Block& block);
  void drop(Block& block);
  // Logs notices of the stash for its user. This takes Python's lock, so the caller must hold no lock for
  // which a holder of Python's lock may wait.
  void log_notice();

  vdnn_stash* get() const { return stash_; }

 private:
  // Storages to free once the lock has been released.
  using Trash = std::vector<c10::intrusive_ptr<c10::StorageImpl>>;

  void check(vdnn_status status) const;
  void* current_stream() const;
  // Returns the bytes in use, 0 if unknown. Also tells the stash the peak since the last call.
  std::uint64_t bytes_in_use();
  // Restarts the measurement of the peak.
  void restart_peak();
  std::optional<MemoryFigures> memory() const;
  // Returns null if the tensor must stay.
  Block* add(const at::Tensor& tensor, std::uint32_t& answer);
  // Functions that put tensors return the answers of vdnn_stash_put(), combined.
  std::uint32_t enter(Block& block, const at::Tensor& tensor, Trash& trash);
  std::uint32_t put(Block& block, const c10::StorageImpl& storage, Trash& trash);
  std::uint32_t put_what_nobody_holds(Trash& trash);
  // Begins to watch a block that others hold. Before each save and read of a step that is learned, the block
  // is checked, and the stash is told when nobody else holds it any more. If others hold the block for long,
  // it is checked again only when that time has grown by 1/64.
  void watch(Block& block);
  void note_who_let_go();
  void defer(Block& block);
  void stop_deferring(Block& block);
  void end_use(Block& block, Trash& trash);
  void note_saver(Block& block, const c10::DataPtr& memory);
  void note_leaving(Block& block);
  // Frees the source of a leaving tensor at once if vdnn's pool orders the memory's reuse after the offload
  // stream. Otherwise keeps the source.
  void release_at_put(Block& block, std::uint32_t answer, Trash& trash);
  // Does what the answer of a put requests, and what the resulting answers request.
  std::uint32_t follow(std::uint32_t answer, void* stream, Trash& trash);
  std::uint32_t let_leave(void* stream, Trash& trash);
  void release(void* stream, Trash& trash);
  void fetch(Block& reading, void* stream);

  const StashFunctions& functions_;
  c10::Device device_;
  const vdnn_door_pool pool_;
  void* offload_stream_ = nullptr;  // set if sources are released at put
  vdnn_stash* stash_ = nullptr;
  std::mutex mutex_;        // guards the members below
  RecentPeak recent_peak_;  // only for a GPU
  std::uint64_t saves_ = 0;
  std::unordered_map<BlockIdentity, Block, HashOfBlockIdentity> blocks_;
  std::unordered_map<vdnn_stash_handle, Block*> by_handle_;
  std::multimap<std::uint64_t, Block*> deferred_;  // by `look_at`
  std::uint64_t looks_ = 0;                        // number of passes over the watched blocks
  std::vector<Watched> watched_;
};

}  // namespace vdnn::door
