#pragma once
// The contract of vdnn/stash.h in PyTorch's terms: storages, versions and current streams.
//
// A block is a storage at one version, of which autograd has saved tensors. Identity is a weak reference to
// the storage: while a block holds it, PyTorch gives the address of the StorageImpl to no other storage, so
// that (address, version) names the contents for as long as the handle lives.
//
// Autograd also saves tensors without a history: buffers, frozen parameters, inputs and masks. Operations
// update some of these without counting a version, as batch normalisation does with its running statistics,
// so a copy would race with the update. The holders tell such tensors apart: a module holds its buffers,
// while only the graph holds a mask once its operation has returned. Therefore a tensor without a history is
// *deferred*: it is put at a later save, once nobody else holds its storage, or never. This needs no look at
// modules, and also covers buffers that are replaced, moved to another device or held by TorchScript. A
// deferred tensor is checked again whenever its age has grown by a quarter, so the number of checks is
// logarithmic in the step's saves.
//
// Without hooks, a program need not tell the allocator (record_stream()) of streams that save a tensor, since
// the graph holds it until backward. A tensor that leaves is freed in the middle of the forward pass.
// Therefore this class tells the allocator of each stream that has saved it.
//
// A storage may belong to Python, and its destructor then takes Python's lock. A thread that holds Python's
// lock may wait for the lock here. Therefore no storage is freed while the lock is held: see `Trash`.

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
  // `stream`: its work so far produces the tensor.
  Block(const at::Tensor& tensor, void* stream);

  bool is_unchanged() const { return counter.current_version() == version; }
  // The source, if others than this block hold it; else null.
  c10::intrusive_ptr<c10::StorageImpl> held_by_others() const;
  bool is_held_by_others() const;
  // A new storage on the same device, from the same allocator.
  c10::intrusive_ptr<c10::StorageImpl> new_storage(std::uint64_t size_bytes) const;

  vdnn_stash_handle handle = 0;  // 0: not put yet
  c10::weak_intrusive_ptr<c10::StorageImpl> weak;
  c10::intrusive_ptr<c10::StorageImpl> source;  // until it is released
  c10::intrusive_ptr<c10::StorageImpl> target;  // while its contents are back
  void* target_stream = nullptr;                // on which the target was allocated
  c10::Allocator* allocator;
  std::uint64_t bytes;
  std::uint64_t signature;
  void* stream;
  c10::VariableVersion counter;  // holds no storage
  std::uint32_t version;
  std::uint64_t users = 0;                  // saves that have not been dropped
  std::uint64_t puts = 0;                   // those of them that the stash knows: all or none
  std::uint64_t saved_at = 0;               // the number of saves at the time
  c10::SmallVector<c10::Stream, 1> savers;  // GPU streams that saved tensors of it
  bool leaves = false;                      // whether it is, or was, on its way out
  std::uint64_t look_at = 0;                // the save at which it is checked next; 0: it is not deferred
  bool is_watched = false;                  // whether the stash must learn when nobody else holds it any more
};

// A block that others hold, until the stash learns that they let go.
struct Watched {
  Block* block;
  std::uint64_t since;    // in looks
  std::uint64_t look_at;  // likewise
};

class DeviceStash {
 public:
  // Throws c10::Error if the stash cannot be made.
  DeviceStash(const StashFunctions& functions, const vdnn_stash_options& options, c10::Device device,
              const vdnn_door_pool& pool);

  struct Saved {
    Block& block;  // lives until drop() has been called as often as save()
    bool has_notice;
  };
  Saved save(const at::Tensor& tensor);
  // The contents of a block, for the next work of the current stream.
  c10::intrusive_ptr<c10::StorageImpl> load(Block& block);
  void drop(Block& block);
  // Logs notices of the stash for its user. The caller must hold no lock for which a holder of Python's lock
  // may wait.
  void log_notice();

  vdnn_stash* get() const { return stash_; }

 private:
  // Storages to free once the lock has been released.
  using Trash = std::vector<c10::intrusive_ptr<c10::StorageImpl>>;

  void check(vdnn_status status) const;
  void* current_stream() const;
  // The bytes in use; 0: unknown. Also tells the stash of the peak since the last call.
  std::uint64_t bytes_in_use();
  // The next peak counts from here on.
  void restart_peak();
  std::optional<MemoryFigures> memory() const;
  Block& add(const at::Tensor& tensor, std::uint32_t& answer);
  // Functions that put something return the answer of vdnn_stash_put().
  std::uint32_t enter(Block& block, const at::Tensor& tensor, Trash& trash);
  std::uint32_t put(Block& block, const c10::StorageImpl& storage, Trash& trash);
  std::uint32_t put_what_nobody_holds(Trash& trash);
  // Tells the stash, before each save and read of a step that is learned, whether others hold saved storages.
  // A block that others hold for long is checked again whenever that time has grown by 1/64.
  void watch(Block& block);
  void note_who_let_go();
  void defer(Block& block);
  void stop_deferring(Block& block);
  void end_use(Block& block, Trash& trash);
  void note_saver(Block& block, const c10::DataPtr& memory);
  void note_leaving(Block& block);
  // Frees a source that leaves at once if vdnn's pool orders its reuse after the offload stream. Otherwise
  // holds it.
  void release_at_put(Block& block, std::uint32_t answer, Trash& trash);
  // Does all that the answer of a put requests, and handles the resulting answers as well.
  std::uint32_t follow(std::uint32_t answer, void* stream, Trash& trash);
  std::uint32_t let_leave(void* stream, Trash& trash);
  void release(void* stream, Trash& trash);
  void fetch(Block& reading, void* stream);

  const StashFunctions& functions_;
  c10::Device device_;
  const vdnn_door_pool pool_;
  void* offload_stream_ = nullptr;  // set if sources are released at put
  vdnn_stash* stash_ = nullptr;
  std::mutex mutex_;        // guards what follows
  RecentPeak recent_peak_;  // of a GPU
  std::uint64_t saves_ = 0;
  std::unordered_map<BlockIdentity, Block, HashOfBlockIdentity> blocks_;
  std::unordered_map<vdnn_stash_handle, Block*> by_handle_;
  std::multimap<std::uint64_t, Block*> deferred_;  // by `look_at`
  std::uint64_t looks_ = 0;                        // at watched blocks
  std::vector<Watched> watched_;
};

}  // namespace vdnn::door
