#pragma once
// A stash of saved tensors. Tensors that a program saves in its forward pass leave the device for page-locked
// host memory, and come back before the backward pass reads them (Rhu et al., "vDNN", MICRO 2016). The stash
// serves programs whose network we do not know. It sees only a tensor's address, size and identity, and when
// the tensor is saved, read and dropped.
//
// *Order.* The copy out waits for all work that was submitted to the compute stream when the tensor was
// saved. If a kept tensor leaves later, its copy also waits for the work of the stream that is passed to
// leave(). A source is released once the compute stream waits for its copy. When more than `flight_bytes` are
// being copied, the compute stream is made to wait for the oldest copies. The copy back waits for the
// target's stream, since the target's memory may have had another use there, and for the tensor's own copy
// out. The reader's stream waits for the copy back. A block of host memory is reused once the offload stream
// waits for the last copy from it. Streams make all of these waits. The host waits in three cases only: when
// a block of host memory is given back to the system, when a stream cannot wait itself, and when the stash is
// destroyed. No decision depends on which copies have finished, so the same program makes the same decisions
// each time.
//
// *Streams.* The caller must not destroy a stream while handles that were put or fetched with it are alive.
// No work can be submitted to a stream that was destroyed too early or is captured: the host waits for the
// copy in its place, and a kept tensor of such a stream does not leave. The stash identifies streams by their
// ids, because CUDA may give the handle of a destroyed stream to a later one.
//
// *Captures.* Nothing of the stash becomes part of a program's graph, and no call invalidates a capture.
// While a stream is captured, tensors that are put with it are kept, released() for it has no handles, and
// read() requests no fetches ahead. fetch() throws CaptureConflict and changes nothing. So do ready() and,
// for a tensor that has left, read(), unless the captured stream already comes after the tensor's fetch.
//
// *What leaves.* In the first step of its kind the stash learns the order of saves and reads, and how many
// bytes the caller's tensors use at each of them. Nothing moves while the bytes in use are far below the
// budget. As they approach it, kept tensors leave, the oldest first, because backward reads them last
// (Belady's rule for a last-in first-out order). From the second step on, a plan decides at each save.
// Nothing leaves if all tensors fit. Otherwise the plan chooses the cheapest set of tensors that has to leave
// to keep the bytes in use within the budget. If the budget requires it, the plan also lowers `ahead_bytes`
// and `flight_bytes` (src/stash/step_plan.h). A program's first step creates tensors that outlive it, for
// example the optimizer's state. Therefore the second step's bytes in use replace the first's; if they are
// the same, so is the plan. A later step changes these figures only if it exceeds the budget. A step that
// differs from every learned one is served on demand, with the same contents, and learned anew. Several kinds
// of steps are remembered (training and evaluation, a generator and a discriminator).
//
// *What comes back.* Each read starts further fetches in the learned order, as far as `ahead_bytes` allows
// and the targets fit into the budget (src/stash/fetch_schedule.h). A tensor that is read before its fetch
// was started is fetched late, which is counted.
//
// *Identity.* If one storage is saved twice at one version, the stash makes one copy. The caller names
// storages. It may reuse a name for another storage only after all handles with this name have been dropped.
// An address cannot be such a name, since allocators reuse it earlier.
//
// *Lifetime.* A handle lives until it is dropped as often as it was put, not until it is read. Graphs may be
// kept for a second pass, some branches are never read, and an exception may end a forward pass. A step ends
// when its last handle is dropped, or by end_step(). It also ends when the stash recognises that its
// repetition has begun, even if some of its handles are alive (src/stash/step_borders.h).
//
// *Host memory.* Blocks are kept for later steps and serve tensors of about their size
// (src/stash/host_blocks.h), so that steps of changing sizes share them. A step that repeats a learned one
// locks no page: the blocks that a plan lacks are locked between two steps. If the host's budget, or the
// system's own limit, is too small, the same tensors stay in each repetition.
//
// The caller owns all device memory; vdnn/stash.h describes the calls of one step.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "vdnn/stash_backend.h"

namespace vdnn {

using StashHandle = std::uint64_t;  // 0: none

// Half of the machine's memory, or of the limit of the process's control group if that is less.
std::uint64_t default_host_bytes();

struct StashOptions {
  // Limit for the caller's tensors on the device. 0: every tensor leaves.
  std::uint64_t budget_bytes = 0;
  // Limit for page-locked memory, in use or kept for reuse. 0: default_host_bytes(), which several stashes on
  // one machine should divide among them.
  std::uint64_t host_bytes = 0;
  // Limit for bytes fetched and not yet read; a single tensor may exceed it. Absent: the step's two largest
  // tensors.
  std::optional<std::uint64_t> ahead_bytes;
  // Limit for bytes being copied out and not yet released. Absent: the step's two largest tensors.
  std::optional<std::uint64_t> flight_bytes;
  // The device's allocator itself orders reuse of a source after the offload stream, so the caller releases
  // the source as soon as put() or leave() returns. For memory of another allocator the caller calls hold().
  bool release_at_put = false;
};

struct SavedTensor {
  AddressRange source;            // not empty
  StreamHandle stream = nullptr;  // its work so far produces the source
  StashIdentity contents;
  std::uint64_t signature = 0;  // compared with that of learned steps
};

enum class StashVerdict : std::uint8_t { kKept, kLeaves, kShared };

struct PutAnswer {
  StashHandle handle = 0;
  StashVerdict verdict = StashVerdict::kKept;
  bool has_released = false;  // released() has handles
  bool has_leaving = false;   // leaving() has handles
  bool has_notice = false;    // take_notice() has a text
  bool is_watched = false;    // note_held() for this handle improves plans and the learned step
};

enum class StashPlace : std::uint8_t {
  kInPlace,  // the source is still there
  kBack,     // the target holds the tensor for all work submitted to the reader's stream from now on
  kMissing,  // the tensor has to be fetched: fetches(), fetch(), ready()
};

struct ReadAnswer {
  StashPlace place = StashPlace::kInPlace;
  bool has_fetches = false;  // fetches() has handles
  bool last = false;         // no further read is expected: the caller releases the target
};

struct DueFetch {
  StashHandle handle = 0;
  std::uint64_t bytes = 0;
};

// vdnn_stash_statistics (stash.h) describes each figure.
struct StashStatistics {
  std::uint64_t puts = 0;
  std::uint64_t shared = 0;
  std::uint64_t left = 0;
  std::uint64_t refused = 0;
  std::uint64_t fetched_ahead = 0;
  std::uint64_t fetched_late = 0;
  std::uint64_t late_when_repeated = 0;
  std::uint64_t out_bytes = 0;
  std::uint64_t in_bytes = 0;
  std::uint64_t live_handles = 0;
  std::uint64_t host_bytes = 0;
  std::uint64_t host_peak_bytes = 0;
  std::uint64_t device_peak_bytes = 0;
  std::uint64_t planned_peak_bytes = 0;
  std::uint64_t page_locks = 0;
  std::uint64_t page_locks_when_repeated = 0;
  std::uint64_t steps = 0;
  std::uint64_t repeated_steps = 0;
  std::uint64_t diverged_steps = 0;
  std::uint64_t plans = 0;
  std::uint64_t copy_nanoseconds = 0;
  std::uint64_t wait_nanoseconds = 0;
  std::uint64_t planned_out_bytes = 0;
};

// Thread-safe. A call that throws has changed no handle, except drop(). Throws InvalidArgument for a handle
// that is not alive; exceptions of the backend pass through.
class TensorStash {
 public:
  TensorStash(std::unique_ptr<StashBackend> backend, const StashOptions& options);
  // Waits for copies in flight. Handles need not have been dropped.
  ~TensorStash();
  TensorStash(const TensorStash&) = delete;
  TensorStash& operator=(const TensorStash&) = delete;

  // Saves a tensor. `in_use_bytes`, here and in read(): the bytes of the caller's tensors on the device; 0:
  // unknown, the tensors in the stash are counted instead. The tensor is kept if there is no page-locked
  // memory for its copy, or the stream is captured.
  PutAnswer put(const SavedTensor& tensor, std::uint64_t in_use_bytes);

  // Kept handles that should leave now, at most `capacity`, the oldest first. The caller calls leave() or
  // stay() for each and asks again, until there are none. A handle is named once between two puts.
  std::vector<StashHandle> leaving(std::size_t capacity);
  // Copies out a source that nobody but the caller holds and that is unchanged. The copy waits for the work
  // submitted to `stream` so far, and for the source's producer. The answer's handle is `handle`.
  PutAnswer leave(StashHandle handle, StreamHandle stream);
  // Keeps a tensor whose source others hold, so that leaving would free no memory yet. The handle may be
  // named again after the next put; plans use how long the source was held.
  void stay(StashHandle handle);
  // With release_at_put, once put() or leave() has answered that the tensor leaves: reports that the
  // allocator of its memory does not order reuse after the offload stream. The caller holds the source until
  // released() names the handle, or until the last drop(). Throws InvalidArgument for a tensor that has not
  // left in this way, or was fetched since.
  void hold(StashHandle handle);
  // Reports whether others than the caller hold the source: moving it frees no memory until they release it.
  // For a watched handle, a caller that knows whether others hold the source reports true after the put, and
  // false before the first put or read at which nobody else holds it. A handle without a report counts as
  // held by nobody.
  void note_held(StashHandle handle, bool held);
  // Reports, before a put or a read, the most bytes that the caller's tensors used since the previous put or
  // read. Without a report the stash uses the larger of the bytes in use at both.
  void note_peak(std::uint64_t bytes);
  // The handles whose sources the caller must release now. It may release them in the order of `stream` or of
  // the stream of the put: both streams wait for the copies.
  std::vector<StashHandle> released(StreamHandle stream, std::size_t capacity);

  // Announces a read by the next work submitted to `stream`. `held`: others hold the source, which is
  // unchanged and can be used whether it was released or not; in later steps the tensor stays on the device.
  ReadAnswer read(StashHandle handle, StreamHandle stream, std::uint64_t in_use_bytes, bool held = false);
  // The tensors to fetch now: `reading`, if it is missing, then those that the learned step reads next. Each
  // tensor to be fetched ahead is named once, and the caller need not fetch it.
  std::vector<DueFetch> fetches(StashHandle reading, std::size_t capacity);
  // Copies the tensor to `target`, memory that work submitted to `stream` from now on may write. Throws
  // CaptureConflict while `stream` is captured: a graph that is launched later cannot wait for the copy.
  void fetch(StashHandle handle, std::uint64_t target, StreamHandle stream);
  // Makes `stream` wait for the fetch: all later work on it may read the target.
  void ready(StashHandle handle, StreamHandle stream);

  // Drops the handle of one put. After the last drop of the handle, the caller may release source and target
  // in the order of the streams that it passed with them. The handle is dropped even if this throws.
  void drop(StashHandle handle);

  // Ends the step although handles are alive; such handles are served on demand.
  void end_step();
  // Forgets all learned steps.
  void forget();

  // A text for the user, empty if there is none: the host's budget is exhausted, the system refuses to
  // page-lock memory within it, or the device's budget cannot be kept. Returns each text once. If the text
  // with a terminating zero exceeds `capacity`, the next call returns it again.
  std::string take_notice(std::size_t capacity);

  StashStatistics statistics() const;
  // The step that was learned last, as JSON that follows docs/learned_step.schema.json; empty before the
  // first.
  std::string learned_step() const;
  const StashBackend& backend() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vdnn
