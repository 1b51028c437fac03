#pragma once
// The stream pool: a caching allocator for programs that we do not run. Their streams are foreign handles,
// and the pool does not see their submissions. The pool nevertheless hands memory from one stream to another
// without making the host wait. The new work on the memory begins only after the device is done with the
// earlier work.
//
// Order. A stream's *epoch* is the number of events that the pool has recorded on it. A block that is freed
// on stream s at epoch e may be reused by any stream that is ordered after the point (s, e + 1). That point
// need not exist yet, so a free makes no call of the backend. When another stream gets the block, the pool
// records one event on s. The event makes that point, and with it the points of all frees on s so far. The
// other stream waits for the event on the device. From then on it is ordered after everything that s was
// ordered after. A stream that reuses its own blocks needs no event at all. The arithmetic is that of
// frontiers (vdnn/frontier.h). Offsets are managed as in the executor's pool (vdnn/device_pool.h).
//
// Memory. Granules are mapped side by side into a range of addresses that is larger than the budget. Large
// blocks are placed there; small and persistent blocks are cut from slabs, which are large blocks themselves.
// A large block that fits nowhere in one piece is made of free granules, wherever they are, by mapping them
// once more, side by side. Such addresses are kept and reused, so a program that repeats a step maps nothing
// more.
//
// The pool reuses memory, even if a stream then has to wait on the device, before it commits more. A request
// fails only if it needs more granules than are wholly free or may still be committed within the budget and
// the device's memory. A granule is not wholly free if a block uses a part of it, or if it belongs to a slab
// with a block in it. Before a request fails, the pool asks the program to free memory
// (StreamPoolOptions::on_exhausted). The host rarely waits to serve a request, for example if a program whose
// sizes always change has used up all addresses. docs/allocator.md lists the cases.
//
// Speed. Small blocks that are freed on their own stream go to a cache of that stream, in exact size classes
// under the stream's own lock. There, allocate and free need a constant number of steps. Their only call of
// the backend is stream_id(), and with StreamPoolOptions::ends_are_told they make none. All other calls are
// under one lock.
//
// Sources: Mattern, "Virtual time and global states of distributed systems" (1989); Masmano et al., "TLSF"
// (2004); segments that grow by mapping as in PyTorch's expandable segments; granules that are mapped more
// than once as in GMLake (ASPLOS 2024).

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "vdnn/error.h"
#include "vdnn/pool_backend.h"

namespace vdnn {

enum class BlockKind : std::uint8_t {
  kSmall,  // at most StreamPoolOptions::small_bytes
  kLarge,
  kPersistent,  // small and declared long-lived: kept apart from short-lived blocks
};
inline constexpr std::array kAllBlockKinds{BlockKind::kSmall, BlockKind::kLarge, BlockKind::kPersistent};
inline constexpr std::size_t kBlockKinds = kAllBlockKinds.size();
std::string_view to_string(BlockKind kind);

enum class BlockLife : std::uint8_t { kTransient, kPersistent };

struct StreamPoolOptions {
  // Name of the pool in errors, pictures and snapshots. Empty: the backend's name.
  std::string name;
  // Most bytes that the pool may commit, for all kinds together; rounded down to granules. 0: the backend's
  // memory.
  std::uint64_t budget_bytes = 0;
  // A soft limit in bytes. While more is committed, a free() gives wholly free granules back to the device if
  // the work on them is done; blocks in caches are kept. Such frees cost more, since they poll events. 0:
  // only trim() gives memory back.
  std::uint64_t high_water_bytes = 0;
  // Bytes of the largest small block; never more than one granule. Sizes of small blocks are rounded up to
  // classes, 32 in every power of two.
  std::uint64_t small_bytes = std::uint64_t{256} << 10;
  // Most bytes in the cache of one stream; 0: there are no caches.
  std::uint64_t cache_bytes = std::uint64_t{8} << 20;
  // The caller promises to call forget() before each stream is destroyed. Then the pool trusts handles;
  // otherwise each call asks the backend whether the handle still means the same stream.
  bool ends_are_told = false;
  // How many of the latest events history() returns; 0: none, at no cost. Otherwise each call acquires one
  // more lock.
  std::size_t history_events = 0;
  // Keep the call stack of each event, which costs microseconds per call.
  bool stack_traces = false;
  // The pool calls it, without any lock, if `bytes` are not available, so that the program can free blocks.
  // Returns true to try again. If it throws, the request throws, too. A request that is larger than the
  // budget is refused without this call, since freeing cannot serve it.
  std::function<bool(std::uint64_t bytes)> on_exhausted;
};

// A quantity that grows and shrinks. `added` and `removed` are counted from the making of the pool; `peak` is
// the largest value since reset_peaks().
struct PoolFigure {
  std::uint64_t current = 0;
  std::uint64_t peak = 0;
  std::uint64_t added = 0;    // in total
  std::uint64_t removed = 0;  // in total

  friend bool operator==(const PoolFigure&, const PoolFigure&) = default;
};

// Figures of all blocks, or of one kind. All but `blocks` are in bytes. In the statistics of a single stream,
// `active` and `reserved` are 0.
struct PoolFigures {
  PoolFigure blocks;     // handed out
  PoolFigure requested;  // handed out, as requested
  PoolFigure allocated;  // handed out, rounding included
  PoolFigure active;     // handed out, or in the cache of a stream
  PoolFigure reserved;   // committed
};

// `current`, `added` and `removed` are exact whenever no thread is inside the pool, and so are the peaks of
// `active` and `reserved`. The peaks of `blocks`, `requested` and `allocated` are exact for one stream, and
// for a pool that one stream uses or that has no caches. With several streams they may add up peaks that the
// streams have reached in their caches at different times. They are never too low, and the peaks of
// `requested` and `allocated` never exceed the peak of `active`.
struct StreamPoolStatistics {
  PoolFigures all;
  std::array<PoolFigures, kBlockKinds> kinds;  // by BlockKind
  // Figures of the whole pool. In the statistics of a single stream only reused_from_cache is set:
  std::uint64_t reused_from_cache = 0;  // blocks, by the stream that had freed them
  std::uint64_t reused_at_once = 0;     // blocks of free memory for which no stream had to wait
  std::uint64_t reused_after_wait = 0;
  std::uint64_t growths = 0;
  std::uint64_t events_recorded = 0;
  std::uint64_t stream_waits = 0;  // inserted on the device
  std::uint64_t host_waits = 0;    // for an event
  std::uint64_t device_waits = 0;  // for all work, for example after a stream had gone without notice
  std::uint64_t events_held = 0;   // events of the backend held now; never more than 1,024
  // Entries of the pool's clocks now: streams that have freed lately, or whose work is not known to be done.
  std::uint64_t streams_tracked = 0;
  std::uint64_t streams_visited = 0;  // by calls that look at several streams
  std::uint64_t retries = 0;   // times that all caches were flushed, or on_exhausted() called, for a request
  std::uint64_t failures = 0;  // refused requests
  std::uint64_t freed_unordered = 0;  // blocks

  const PoolFigures& of(BlockKind kind) const { return kinds[static_cast<std::size_t>(kind)]; }
};

// A piece of the pool's address space.
struct PoolPiece {
  enum class State : std::uint8_t {
    kInUse,   // handed out
    kCached,  // free, in the cache of a stream
    kFree,    // free and committed; adjacent free memory is one piece
    kVacant,  // address space without memory, or mapped to memory of another piece
  };
  State state = State::kFree;
  BlockKind kind = BlockKind::kSmall;
  AddressRange range;
  std::uint64_t requested_bytes = 0;  // of pieces in use
  std::uint64_t stream_id = 0;        // of pieces in use or cached; 0: from allocate_ready()
};

// An event of a pool's history: a block was handed out or freed, or a request was refused.
struct PoolEvent {
  enum class Kind : std::uint8_t { kAllocated, kFreed, kRefused };
  Kind kind = Kind::kAllocated;
  AddressRange range;              // as requested; for a refused request only `bytes` is set
  std::uint64_t stream_id = 0;     // of the stream that the block was allocated for; 0: allocate_ready()
  std::uint64_t microseconds = 0;  // since the beginning of 1970
  std::vector<void*> frames;       // return addresses, the innermost first, if stacks are kept
};

// Thread-safe. The destructor waits for the device and gives all memory back, including that of blocks in
// use. The backend must outlive the pool.
//
// A mistake of the caller throws InvalidArgument from the call that makes it, and changes nothing. Such
// mistakes are an address at which no block in use begins (freed earlier, in the middle of a block, not the
// pool's), and a stream that does not exist. Size 0 is size 1. A size beyond the budget, however large, is no
// mistake: the request is refused.
//
// While a stream is being captured (CUDA graphs), no event may be recorded or waited for across the border of
// the capture. So the stream gets memory that needs no event: its own, or new memory. A stream that would
// have to wait for a captured stream also gets only such memory. If there is no such memory, allocate()
// throws CaptureConflict. A block that a graph uses must not be freed as long as the graph may be launched.
//
// While any stream of the GPU is captured, nothing may wait for the whole GPU. Calls that would have to, for
// example after a stream has gone without notice, are refused or postponed until the capture has ended, and
// trim() gives back less. If 1,024 streams have gone without notice during a capture, requests of new streams
// throw CaptureConflict.
//
// A pool that is destroyed during a capture waits for the streams that are not captured. If a block may still
// be in use by work for which the pool cannot wait, all memory of the pool stays with the backend
// (PoolBackend::leave()). Such work is that of captured streams, of streams that have gone without notice and
// of other threads' default streams, and any work on blocks of allocate_ready() that are in use.
class StreamPool {
 public:
  StreamPool(PoolBackend& backend, const StreamPoolOptions& options);
  ~StreamPool();
  StreamPool(const StreamPool&) = delete;
  StreamPool& operator=(const StreamPool&) = delete;

  // Allocates `bytes` for work submitted to `stream` from now on, and for streams that are ordered after it.
  // Empty if the pool has no memory for it: an expected outcome, see shortage() and picture(). Throws what
  // the backend throws, except OutOfMemory.
  std::optional<AddressRange> allocate(std::uint64_t bytes, StreamHandle stream,
                                       BlockLife life = BlockLife::kTransient);
  // Like allocate(), but any stream and the host may use the block immediately. The host waits if necessary.
  std::optional<AddressRange> allocate_ready(std::uint64_t bytes, BlockLife life = BlockLife::kTransient);

  // Frees a block in the order of the stream that it was allocated for. All uses of the block must be earlier
  // work of this stream, or work of streams that used_on() has named. A block of allocate_ready() must be
  // idle.
  void free(std::uint64_t address);
  // Frees a block in the order of `stream`, which must be ordered after all uses of the block on other
  // streams.
  void free(std::uint64_t address, StreamHandle stream);
  // Frees a block whose uses are all known to be done, for example after the host has synchronised.
  void free_idle(std::uint64_t address);
  // Frees a block whose last users are unknown, or do not exist any more. Makes no call of the backend: the
  // next user of the memory waits for all work submitted to the device so far. While a stream is being
  // captured, which forbids that wait, other memory is handed out.
  void free_unordered(std::uint64_t address);
  // Declares that `stream` uses the block, too: all work submitted to it until the block is freed counts as a
  // use.
  void used_on(std::uint64_t address, StreamHandle stream);

  // Whether `address` lies in the pool's address space.
  bool owns(std::uint64_t address) const;
  // The block in use that begins at `address`, with the size that was requested; empty if there is none.
  std::optional<AddressRange> find(std::uint64_t address) const;

  // The handle of the stream that the block in use at `address` was allocated for; the stream may have ended
  // since. Empty for blocks of allocate_ready(), and if no block begins there.
  std::optional<StreamHandle> stream_of(std::uint64_t address) const;

  // Call this before you destroy a stream; an unknown stream is no error. Records an event on the stream if
  // blocks still depend on its work. Blocks that were allocated for it may be used and freed later. If the
  // work of an ended stream is not done when 128 more streams have ended, the host waits for it.
  //
  // A stream has gone without notice if its handle appears for another stream, or if an event cannot be
  // recorded because the stream does not exist. Its memory, freed or still in use, is given to other streams
  // only after a synchronisation of the whole device. On CUDA this relies on the driver, which returns an
  // error for the handle of a destroyed stream; CUDA's documentation calls such calls undefined.
  void forget(StreamHandle stream);

  // Flushes the caches and gives wholly free granules back until at most `keep_bytes` are committed; the host
  // waits for work on them. Returns the bytes given back.
  std::uint64_t trim(std::uint64_t keep_bytes = 0);

  // Commits memory up to a total of `bytes` (rounded up to granules). Reserves a known peak up front, so that
  // requests do not wait for the device to map memory, and so that failure happens here rather than in the
  // middle of a step. Returns false if the budget or the device does not have that much; a part may then be
  // committed.
  bool reserve(std::uint64_t bytes);
  // Most bytes that may be committed: whole granules.
  std::uint64_t budget_bytes() const;

  // The numbers that explain why a request of `asked` bytes was refused.
  MemoryShortage shortage(std::uint64_t asked) const;
  StreamPoolStatistics statistics() const;
  // Figures of the blocks that were allocated for one stream; all 0 for an unknown stream.
  StreamPoolStatistics statistics(StreamHandle stream) const;
  void reset_peaks();
  // All pieces of the address space, in order of address.
  std::vector<PoolPiece> snapshot() const;
  // Text for people: the memory of each kind and the largest holes.
  std::string picture() const;
  // The latest events, the oldest first: at most StreamPoolOptions::history_events. Events of concurrent
  // threads are in an order in which they may have happened: a free comes before the reuse of its memory.
  std::vector<PoolEvent> history() const;

  const std::string& name() const;

  PoolBackend& backend() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vdnn
