#pragma once
// The contract of vdnn/stash.h in PyTorch's terms: storages, versions and current streams.
//
// A block is a storage at one version that tensors were saved of. Identity is a weak reference to the
// storage: while a block holds it, PyTorch gives the address of the StorageImpl to no other storage, so that
// (address, version) names the contents for as long as the handle lives.
//
// Autograd saves buffers, frozen parameters, inputs and masks alike: tensors without a history. Some of them
// an operation goes on updating without counting a version, as batch normalisation does with its running
// statistics, so that a copy would race with it. Who holds such a tensor tells them apart: a module holds its
// buffers, while a mask has no holder but the graph once its operation has returned. Therefore a tensor
// without a history is *deferred*: it is put at a later save, once nobody else holds its storage, or never.
// That holds for buffers that are replaced, moved to another device or held by TorchScript, and no module is
// looked at. A deferred tensor is looked at again whenever its age has grown by a quarter, so that looking
// costs each of them a logarithm of the step's saves.
//
// A program without hooks need not tell the allocator (record_stream()) of streams that save a tensor: the
// graph holds it until backward. A tensor that leaves is let go of in the middle of the forward pass.
// Therefore the allocator is told of each stream that has saved it.
//
// A storage may belong to Python, whose lock its destructor takes, and a thread that has Python's lock may
// wait for the lock here. Therefore no storage is let go of while the lock is held: see `Trash`.

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
  // `stream`: what it was given so far produces the tensor.
  Block(const at::Tensor& tensor, void* stream);

  bool is_unchanged() const { return counter.current_version() == version; }
  // The source, if somebody besides this block holds it; else null.
  c10::intrusive_ptr<c10::StorageImpl> held_by_others() const;
  bool is_held_by_others() const;
  // Of the same device and allocator.
  c10::intrusive_ptr<c10::StorageImpl> new_storage(std::uint64_t size_bytes) const;

  vdnn_stash_handle handle = 0;  // 0: it has not been put
  c10::weak_intrusive_ptr<c10::StorageImpl> weak;
  c10::intrusive_ptr<c10::StorageImpl> source;  // until it is released
  c10::intrusive_ptr<c10::StorageImpl> target;  // while its contents are back
  void* target_stream = nullptr;                // on which it was allocated
  c10::Allocator* allocator;
  std::uint64_t bytes;
  std::uint64_t signature;
  void* stream;
  c10::VariableVersion counter;  // holds no storage
  std::uint32_t version;
  std::uint64_t users = 0;                  // saves that were not dropped
  std::uint64_t puts = 0;                   // of these, that the stash knows: all of them or none
  std::uint64_t saved_at = 0;               // how many saves there were
  c10::SmallVector<c10::Stream, 1> savers;  // streams of a GPU that saved tensors of it
  bool leaves = false;                      // it is on its way out, or has been
  std::uint64_t look_at = 0;                // when it is looked at next, in saves; 0: it is not deferred
  bool is_watched = false;                  // the stash is to know when nobody else holds it any more
};

// Others hold it, and the stash is to know when they let go.
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
  // Tells the stash of the peak since the last call, too. 0: unknown.
  std::uint64_t bytes_in_use();
  // The peak counts from here on.
  void restart_peak();
  std::optional<MemoryFigures> memory() const;
  Block& add(const at::Tensor& tensor, std::uint32_t& answer);
  // Those that put something answer as vdnn_stash_put() does.
  std::uint32_t enter(Block& block, const at::Tensor& tensor, Trash& trash);
  std::uint32_t put(Block& block, const c10::StorageImpl& storage, Trash& trash);
  std::uint32_t put_what_nobody_holds(Trash& trash);
  // While a step is learned, before each save and each read, whether others hold what was saved. A block that
  // they hold for long is looked at again whenever its time has grown by a 64th.
  void watch(Block& block);
  void note_who_let_go();
  void defer(Block& block);
  void stop_deferring(Block& block);
  void end_use(Block& block, Trash& trash);
  void note_saver(Block& block, const c10::DataPtr& memory);
  void note_leaving(Block& block);
  // vdnn's pool keeps a block from its next user until the offload stream has read it, so that what leaves is
  // let go of at once. Other memory is held.
  void release_at_put(Block& block, std::uint32_t answer, Trash& trash);
  // Does all that the answer of a put asks for, and gives the answers to that as well.
  std::uint32_t follow(std::uint32_t answer, void* stream, Trash& trash);
  std::uint32_t let_leave(void* stream, Trash& trash);
  void release(void* stream, Trash& trash);
  void fetch(Block& reading, void* stream);

  const StashFunctions& functions_;
  c10::Device device_;
  const vdnn_door_pool pool_;
  void* offload_stream_ = nullptr;  // if sources are released at put
  vdnn_stash* stash_ = nullptr;
  std::mutex mutex_;        // guards what follows
  RecentPeak recent_peak_;  // of a GPU
  std::uint64_t saves_ = 0;
  std::unordered_map<BlockIdentity, Block, HashOfBlockIdentity> blocks_;
  std::unordered_map<vdnn_stash_handle, Block*> by_handle_;
  std::multimap<std::uint64_t, Block*> deferred_;  // by `look_at`
  std::uint64_t looks_ = 0;                        // at what is watched
  std::vector<Watched> watched_;
};

}  // namespace vdnn::door
