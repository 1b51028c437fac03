#pragma once
// The stream pool: a caching allocator for programs that we do not run. Their streams are foreign handles,
// and what they submit is not seen; the pool still hands memory from one stream to another without waiting on
// the host, and never sooner than the device is done with it.
//
// Order. A stream's *epoch* is the number of events that the pool has recorded on it. A block that is freed
// on stream s at epoch e may be used again by whoever is ordered after the point (s, e + 1), which need not
// exist yet: a free calls nothing. When another stream takes the block, one event is recorded on s, which
// makes that point, and with it those of all frees on s so far; the other stream waits for it on the device,
// and knows from then on what s knew. Streams that take back their own blocks need no event at all. The
// arithmetic is that of frontiers (vdnn/frontier.h), the bookkeeping of offsets that of the executor's pool
// (vdnn/device_pool.h).
//
// Memory. Granules are mapped one behind the other into a range of addresses that is larger than the budget,
// where large blocks are placed; small and persistent ones are cut of slabs, which lie among them. A large
// block for which there is no room in one piece is made of granules that are free, wherever they are, by
// mapping them once more, one behind the other. Such addresses stay and are used again, so that a program
// which repeats a step maps nothing more. Reuse, waiting on the device included, comes before growth. So a
// request fails only when budget and device have not left as many granules as it takes, such as no block, and
// no slab with a block in it, has a part of; and the host waits to serve one only where a program of ever
// other sizes has used all addresses up. Before it fails the program is asked for memory
// (StreamPoolOptions::on_exhausted).
//
// Speed. Small blocks that are freed on their own stream lie in a cache of that stream, in exact size classes
// under the stream's own lock; there, allocate and free take a constant number of steps and no call of the
// backend but stream_id() (see StreamPoolOptions::ends_are_told). All else is under one lock.
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
  kPersistent,  // small, and lives long, as the caller says: apart from small ones that come and go
};
inline constexpr std::array kAllBlockKinds{BlockKind::kSmall, BlockKind::kLarge, BlockKind::kPersistent};
inline constexpr std::size_t kBlockKinds = kAllBlockKinds.size();
std::string_view to_string(BlockKind kind);

enum class BlockLife : std::uint8_t { kTransient, kPersistent };

struct StreamPoolOptions {
  // Of the pool: in errors, pictures and snapshots. Empty: the backend's.
  std::string name;
  // Bytes that the pool may have committed, in all kinds together; rounded down to granules. 0: the backend's
  // memory.
  std::uint64_t budget_bytes = 0;
  // A soft mark: while more is committed, granules that are wholly free are given back to the device by the
  // first free that finds their work done; what caches hold is not. Such frees cost more: they ask for
  // events. 0: memory is given back by trim() alone.
  std::uint64_t high_water_bytes = 0;
  // The largest small block; one granule at most, whatever is said here. Sizes of small blocks are rounded up
  // to classes, 32 in every power of two.
  std::uint64_t small_bytes = std::uint64_t{256} << 10;
  // What the cache of one stream may hold; 0: there are no caches.
  std::uint64_t cache_bytes = std::uint64_t{8} << 20;
  // The caller promises forget() before each stream is destroyed. Then a handle is trusted; else each call
  // asks the backend whether it still means the same stream.
  bool ends_are_told = false;
  // How many of the latest events history() tells; 0: none, at no cost. Else each call takes one lock more.
  std::size_t history_events = 0;
  // With the stack that each was asked from, which takes microseconds a call.
  bool stack_traces = false;
  // The pool has not got `bytes`, which are not more than its budget; a request beyond the budget, which
  // freeing cannot serve, is refused without this call. Called without any lock, so that it may free blocks;
  // true: try again. It may throw, and then the request does.
  std::function<bool(std::uint64_t bytes)> on_exhausted;
};

// How something that is added and removed has developed since the pool was made; `peak` since reset_peaks().
struct PoolFigure {
  std::uint64_t current = 0;
  std::uint64_t peak = 0;
  std::uint64_t added = 0;    // ever
  std::uint64_t removed = 0;  // ever

  friend bool operator==(const PoolFigure&, const PoolFigure&) = default;
};

// Of all blocks, or of one kind. Bytes, but for `blocks`.
struct PoolFigures {
  PoolFigure blocks;     // handed out
  PoolFigure requested;  // handed out, as asked
  PoolFigure allocated;  // handed out, rounding included
  PoolFigure active;     // handed out, or in the cache of a stream; not of a single stream
  PoolFigure reserved;   // committed; not of a single stream
};

// `current`, `added` and `removed` are exact whenever no thread is inside the pool. So are the peaks of
// `active` and `reserved`. Those of the other three are exact for one stream, and for a pool that one stream
// uses or that has no caches; among several streams they may count the peaks that each has reached in its
// cache as if they had been reached at once, and are never too low nor above that of `active` (`requested`
// and `blocks` likewise).
struct StreamPoolStatistics {
  PoolFigures all;
  std::array<PoolFigures, kBlockKinds> kinds;  // by BlockKind
  // Of the whole pool alone:
  std::uint64_t reused_from_cache = 0;  // by the stream that had freed the block
  std::uint64_t reused_at_once = 0;     // a free block that nobody had to wait for
  std::uint64_t reused_after_wait = 0;
  std::uint64_t growths = 0;
  std::uint64_t events_recorded = 0;
  std::uint64_t stream_waits = 0;  // inserted on the device
  std::uint64_t host_waits = 0;    // for an event
  std::uint64_t device_waits = 0;  // for all work, after a stream had gone without notice
  std::uint64_t events_held = 0;   // of the backend, now; never more than 1,024
  // Entries of the pool's clocks, now: streams that have freed lately, or whose work is not known to be done.
  std::uint64_t streams_tracked = 0;
  std::uint64_t streams_visited = 0;  // by what has to look at several
  std::uint64_t retries = 0;          // requests for which all caches were emptied, or the program asked
  std::uint64_t failures = 0;         // requests that were refused
  std::uint64_t freed_unordered = 0;  // blocks

  const PoolFigures& of(BlockKind kind) const { return kinds[static_cast<std::size_t>(kind)]; }
};

// A piece of the pool's address space.
struct PoolPiece {
  enum class State : std::uint8_t {
    kInUse,   // handed out
    kCached,  // free, in the cache of a stream
    kFree,    // free and committed; `range` is as large as can be
    kVacant,  // address space without memory, or with such as other pieces have
  };
  State state = State::kFree;
  BlockKind kind = BlockKind::kSmall;
  AddressRange range;
  std::uint64_t requested_bytes = 0;  // in use
  std::uint64_t stream_id = 0;        // in use or cached; 0: allocate_ready()
};

// What a pool was asked: a block was handed out or freed, or the request refused.
struct PoolEvent {
  enum class Kind : std::uint8_t { kAllocated, kFreed, kRefused };
  Kind kind = Kind::kAllocated;
  AddressRange range;              // as it was asked for; of a refusal only `bytes`
  std::uint64_t stream_id = 0;     // that the block was allocated for; 0: allocate_ready()
  std::uint64_t microseconds = 0;  // since 1970 began
  std::vector<void*> frames;       // return addresses, the innermost first; where stacks are kept
};

// Thread-safe. All that is still handed out when the pool dies is gone with it: its destructor waits for the
// device and gives all memory back. The backend must outlive the pool.
//
// What a caller does wrong is found where the pool is told, as InvalidArgument, and changes nothing: an
// address that is not the beginning of a block in use (freed before, in the middle of one, not the pool's), a
// stream that does not exist. Size 0 is size 1; a size beyond the budget, near 2^64 too, is refused as any
// other that does not fit.
//
// While a stream is being captured (CUDA graphs) it is given memory that needs no event to be recorded or
// waited for across the border of the capture: of its own, or such as nobody has used; so is a stream that
// would have to wait for one that is being captured. Where there is none, the request is refused,
// InvalidArgument. What a graph uses must not be freed as long as that is launched.
//
// While a stream of the GPU is captured, nothing may wait for all of the GPU: what needs that (a stream has
// gone without notice) is refused or put off until the capture has ended, and trim() gives back less. Where
// 1,024 streams have gone without notice during a capture, others that are new are refused, CaptureConflict.
//
// A pool that dies during a capture waits for the streams that are not captured. All its memory stays with
// the backend (PoolBackend::leave()) where others may use a block: captured streams, such as have gone
// without notice, default streams of other threads, or whoever uses what came of allocate_ready() and is in
// use.
class StreamPool {
 public:
  StreamPool(PoolBackend& backend, const StreamPoolOptions& options);
  ~StreamPool();
  StreamPool(const StreamPool&) = delete;
  StreamPool& operator=(const StreamPool&) = delete;

  // `bytes` for what `stream` is given from now on, and for whoever is ordered after it. Empty when the
  // memory cannot be had: an expected outcome, see shortage() and picture(). Throws what the backend throws
  // but for OutOfMemory.
  std::optional<AddressRange> allocate(std::uint64_t bytes, StreamHandle stream,
                                       BlockLife life = BlockLife::kTransient);
  // Likewise, ready for any stream and for the host: the host waits where it has to.
  std::optional<AddressRange> allocate_ready(std::uint64_t bytes, BlockLife life = BlockLife::kTransient);

  // Gives a block back, in the order of the stream that it was allocated for: no stream uses it but for what
  // that one was given before, and for the streams that used_on() named. What came of allocate_ready() must
  // be idle.
  void free(std::uint64_t address);
  // Likewise in the order of `stream`, which must have been made to come after all other uses.
  void free(std::uint64_t address, StreamHandle stream);
  // The work of all streams that have used it is known to be done (after a synchronisation on the host).
  void free_idle(std::uint64_t address);
  // Nobody knows which streams have used it last, or they do not exist any more. Calls nothing: whoever is
  // given the memory next waits for the whole device, as far as it was used by now. While that cannot be,
  // since a stream is being captured, other memory is given out.
  void free_unordered(std::uint64_t address);
  // `stream` uses the block, too, at most until it is freed: what it has been given by then counts.
  void used_on(std::uint64_t address, StreamHandle stream);

  // Whether `address` lies in the pool's address space.
  bool owns(std::uint64_t address) const;
  // The block in use that begins at `address`, as it was asked for.
  std::optional<AddressRange> find(std::uint64_t address) const;

  // The handle of the stream that the block in use at `address` was allocated for, which may have ended
  // since; empty for those of allocate_ready(), and where no block begins there.
  std::optional<StreamHandle> stream_of(std::uint64_t address) const;

  // To be called before a stream is destroyed; one that the pool does not know is no error. Records an event
  // on it where blocks still depend on it. Blocks that were allocated for it may live on, and be freed. Where
  // 128 streams have ended since one whose work is not done, the host waits for that one.
  //
  // Where a handle turns up that means another stream than before, or an event cannot be recorded since the
  // stream is not there any more, it has gone without notice: what it has freed, or still holds, is given to
  // others after a synchronisation of the whole device. On CUDA that rests on drivers, which answer calls
  // with the handle of a stream that was destroyed by an error; its documentation calls them undefined.
  void forget(StreamHandle stream);

  // Empties the caches and gives wholly free granules back until at most `keep_bytes` are committed, waiting
  // on the host for work on them. Returns by how much less is committed.
  std::uint64_t trim(std::uint64_t keep_bytes = 0);

  // Commits memory until it is `bytes` (rounded up to granules), so that requests need not wait for the
  // device to map it, and so that a known peak fails here. False where budget or device have not got as much:
  // then nothing changes, but that the device may have mapped a part.
  bool reserve(std::uint64_t bytes);
  // What may be committed at most: whole granules.
  std::uint64_t budget_bytes() const;

  // The numbers of a request that was refused.
  MemoryShortage shortage(std::uint64_t asked) const;
  StreamPoolStatistics statistics() const;
  // Of the blocks that were allocated for one stream; all 0 for one that the pool does not know.
  StreamPoolStatistics statistics(StreamHandle stream) const;
  void reset_peaks();
  // In order of address.
  std::vector<PoolPiece> snapshot() const;
  // For people: what there is of each kind, and where the holes are.
  std::string picture() const;
  // The latest events, the oldest first: StreamPoolOptions::history_events at most. Those of several threads
  // at once are in an order that explains them.
  std::vector<PoolEvent> history() const;

  const std::string& name() const;

  PoolBackend& backend() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vdnn
