#pragma once
// The stash for programs in C and in languages that call C, with opaque handles and status codes. How saved
// tensors leave a device and come back is explained in vdnn/tensor_stash.h.
//
// Every function returns a status and throws no exception. A call that fails has moved no tensor and changed
// no handle, except where its comment specifies otherwise. Results are written only if the status is VDNN_OK.
// Null pointers and unknown versions return VDNN_INVALID_ARGUMENT, except where a comment allows null. All
// functions may be called from any thread at any time. The calls from vdnn_stash_read() to vdnn_stash_ready()
// belong together: two threads must not make them for one handle at once. A stash must not be used after
// vdnn_stash_destroy() has been called with it.
//
// A stream is a cudaStream_t, null for the legacy default stream. The per-thread default stream
// (cudaStreamPerThread) is a different stream on each thread and must not be passed if several threads call.
// In a stash on the host (`device` VDNN_STASH_HOST) the calling thread acts as the compute stream. Streams
// are ignored there; where a stream would be made to wait, the calling thread waits. Sizes are bytes.
//
// A stream must exist when it is passed, and until the handles that were put or fetched with it have been
// dropped. If it is destroyed earlier, the host waits for copies in its place, and a tensor that was kept
// does not leave any more.
//
// While a stream is captured, nothing of the stash becomes part of the graph, and no call invalidates the
// capture: tensors are kept, vdnn_stash_released() has no handles, and reads request no fetches ahead.
// vdnn_stash_fetch(), vdnn_stash_ready() and, for a tensor that has left, vdnn_stash_read() return
// VDNN_INVALID_ARGUMENT and change nothing. A read of a tensor that has left succeeds only on a stream that
// already comes after the tensor's fetch.
//
// The caller owns all device memory; the stash owns page-locked memory, its two streams and events. In one
// step of a program, the caller
//
//  1. calls vdnn_stash_put() for each saved tensor, the *source*, and continues to hold it. If the answer has
//     VDNN_STASH_LEAVING, the caller calls vdnn_stash_leaving(), then vdnn_stash_leave() or vdnn_stash_stay()
//     for each handle. If the answer has VDNN_STASH_RELEASED, the caller calls vdnn_stash_released() and
//     releases those sources;
//  2. calls vdnn_stash_read() when a saved tensor is needed. The answer tells whether the source is still
//     there (VDNN_STASH_IN_PLACE), the tensor is back (VDNN_STASH_BACK), or it has to be fetched
//     (VDNN_STASH_MISSING). If the answer has VDNN_STASH_FETCHES, the caller calls vdnn_stash_fetches(), and
//     for each handle allocates a *target* on its own stream and calls vdnn_stash_fetch(). After
//     VDNN_STASH_MISSING it then calls vdnn_stash_ready();
//  3. calls vdnn_stash_drop() once for each put, at any time, in any order. The last drop ends the step;
//     vdnn/tensor_stash.h explains how a step ends if its handles are kept.
//
// After fork() a stash belongs to the parent. In the child vdnn_stash_drop() and vdnn_stash_destroy() do
// nothing, and the other functions return VDNN_INVALID_ARGUMENT.

#include <stdint.h>

#include "vdnn/allocator.h"

#ifdef __cplusplus
extern "C" {
#endif

#define VDNN_STASH_VERSION 1

// Given in place of a GPU's ordinal, it makes a stash on the host, for PyTorch on the CPU. Both ends of each
// copy are host memory.
#define VDNN_STASH_HOST (-1)

typedef struct vdnn_stash vdnn_stash;
typedef uint64_t vdnn_stash_handle;  // 0: none

typedef struct vdnn_stash_options {
  uint32_t version;       // VDNN_STASH_VERSION
  int32_t device;         // the GPU, as CUDA counts them, or VDNN_STASH_HOST (the default)
  uint64_t budget_bytes;  // limit for the caller's tensors on the device; 0: every eligible tensor leaves
  uint64_t host_bytes;    // limit for page-locked memory; 0: vdnn_stash_default_host_bytes()
  uint64_t ahead_bytes;   // limit for bytes fetched and not yet read; 0: the two largest tensors of the step
  uint64_t flight_bytes;  // limit for bytes copied out and not yet released; 0: the two largest tensors of
                          // the step
  uint32_t release_at_put;  // 1: sources may be released right after the put, since the device's allocator
                            // orders reuse after the offload stream. vdnn's does so once the caller has
                            // called vdnn_allocator_used_on() with that stream. vdnn_stash_released() then
                            // names only handles that were passed to vdnn_stash_hold()
  uint32_t timed;           // 1: on a GPU, copies and waits are measured by timed events; on the host always
  uint64_t delay_seed;      // for tests of a stash on the host: random delays before copies; 0: none
} vdnn_stash_options;

// Fills in the defaults. `version`: VDNN_STASH_VERSION.
vdnn_status vdnn_stash_options_init(vdnn_stash_options* options, uint32_t version);

// The value that `host_bytes` 0 means: half of the machine's memory, or of the limit of the process's control
// group if that is less. Several stashes on one machine, in one process or in many, should divide it among
// them.
vdnn_status vdnn_stash_default_host_bytes(uint64_t* bytes);

// Makes a stash, with all defaults if `options` is null.
vdnn_status vdnn_stash_create(const vdnn_stash_options* options, vdnn_stash** stash);
// Waits for both streams and gives all host memory back. Does nothing for null.
vdnn_status vdnn_stash_destroy(vdnn_stash* stash);

// The stash's own streams; null in a stash on the host.
vdnn_status vdnn_stash_streams(vdnn_stash* stash, void** offload, void** prefetch);

// Answers of vdnn_stash_put(): one of the first three, combined with any of the flags after them.
#define VDNN_STASH_KEPT 0u      // stays on the device for now
#define VDNN_STASH_LEAVES 1u    // its copy is under way
#define VDNN_STASH_SHARED 2u    // the handle is that of an earlier put of the same storage and version
#define VDNN_STASH_VERDICT 3u   // mask of the three answers above
#define VDNN_STASH_RELEASED 4u  // vdnn_stash_released() has handles
#define VDNN_STASH_LEAVING 8u   // vdnn_stash_leaving() has handles
#define VDNN_STASH_NOTICE 16u   // vdnn_stash_take_notice() has a text for the user
#define VDNN_STASH_WATCHED 32u  // from put: vdnn_stash_note_held() for this handle improves plans

// Saves a tensor: `bytes` (> 0) at `source`, produced by the work submitted to `stream` so far. (storage,
// version) names the contents: the caller gives this name to no other contents until the handle has been
// dropped. `signature` (shape, type, whatever else tells saved tensors apart) is compared with that of
// learned steps. `in_use_bytes`: the bytes of the caller's tensors on the device now; 0: unknown, and the
// stash counts its own tensors instead.
//
// The caller holds the source until vdnn_stash_released() names the handle or the handle has been dropped. If
// the copy cannot be made because no page-locked memory is left, the tensor is kept and counted in `refused`.
vdnn_status vdnn_stash_put(vdnn_stash* stash, const void* source, uint64_t bytes, void* stream,
                           uint64_t storage, uint64_t version, uint64_t signature, uint64_t in_use_bytes,
                           vdnn_stash_handle* handle, uint32_t* answer);

// Kept handles that should leave now, the oldest first. The caller answers each with vdnn_stash_leave() or
// vdnn_stash_stay() and calls again, until there are none. A handle is named once between two puts.
vdnn_status vdnn_stash_leaving(vdnn_stash* stash, vdnn_stash_handle* handles, uint32_t capacity,
                               uint32_t* count);
// Copies out the source of this kept handle. Only the caller of put may hold the source, and its version must
// not have changed. The copy waits for the work submitted so far to `stream` and to the stream of the put.
// `answer` is VDNN_STASH_KEPT if no page-locked memory is left, or one of the streams is captured or
// destroyed, and VDNN_STASH_LEAVES otherwise. Either answer may also have VDNN_STASH_RELEASED.
vdnn_status vdnn_stash_leave(vdnn_stash* stash, vdnn_stash_handle handle, void* stream, uint32_t* answer);
// Keeps a tensor whose source others hold, too, so that moving it would free no memory yet. The handle may be
// named again after the next put; later plans use how long the source was held.
vdnn_status vdnn_stash_stay(vdnn_stash* stash, vdnn_stash_handle handle);
// With `release_at_put`, after VDNN_STASH_LEAVES: reports that another allocator owns the memory of this
// source. The caller holds the source until vdnn_stash_released() names the handle (a later put answers
// VDNN_STASH_RELEASED), or until the handle has been dropped. VDNN_INVALID_ARGUMENT for a handle that has not
// left in this way, or was fetched since.
vdnn_status vdnn_stash_hold(vdnn_stash* stash, vdnn_stash_handle handle);

// Reports whether others than the caller hold the source of this handle (`held`: 1 or 0), so that moving it
// frees no memory until they release it. If a put answers VDNN_STASH_WATCHED and others hold the source, a
// caller that can tell reports 1 after the put. It reports 0 before the first put or read at which nobody
// else holds the source any more. A handle without a report counts as held by nobody.
vdnn_status vdnn_stash_note_held(vdnn_stash* stash, vdnn_stash_handle handle, uint32_t held);
// Reports, before a put or a read, the most bytes that the caller's tensors used since the previous put or
// read. Without a report the stash uses the larger of the two `in_use_bytes`.
vdnn_status vdnn_stash_note_peak(vdnn_stash* stash, uint64_t bytes);

// Names handles whose sources the caller releases now, in the order of `stream` or of the stream of the put.
// Both streams have been made to wait for the copies.
vdnn_status vdnn_stash_released(vdnn_stash* stash, void* stream, vdnn_stash_handle* handles,
                                uint32_t capacity, uint32_t* count);

// Answers of vdnn_stash_read(): one of the first three, combined with any of the flags after them.
#define VDNN_STASH_IN_PLACE 1u  // the source has not been released, or `held` was 1
#define VDNN_STASH_BACK 2u      // the target holds the tensor for all work submitted to `stream` from now on
#define VDNN_STASH_MISSING 4u   // the tensor is the first of vdnn_stash_fetches()
#define VDNN_STASH_FETCHES 8u   // vdnn_stash_fetches() has handles
// The stash expects no further read in this pass: the caller releases the target once this reader has it. A
// later read answers VDNN_STASH_MISSING.
#define VDNN_STASH_LAST 16u

// Announces that the next work submitted to `stream` reads a saved tensor. `held`: 1 if others than the
// caller of put hold the source and it is unchanged. The caller can then use the source whether it was
// released or not. Moving such a tensor frees no memory, so the tensor stays in later steps.
vdnn_status vdnn_stash_read(vdnn_stash* stash, vdnn_stash_handle handle, void* stream, uint64_t in_use_bytes,
                            uint32_t held, uint32_t* answer);
// Names the tensors to fetch now: `reading`, if it is missing, then those that the learned step reads next,
// as far as `ahead_bytes` and the budget allow. Each handle to be fetched ahead is named once; the caller
// need not fetch it.
vdnn_status vdnn_stash_fetches(vdnn_stash* stash, vdnn_stash_handle reading, vdnn_stash_handle* handles,
                               uint64_t* bytes, uint32_t capacity, uint32_t* count);
// Copies the tensor to `target`, memory that work submitted to `stream` from now on may write. The caller
// holds the target until a read answers VDNN_STASH_LAST or the handle has been dropped.
vdnn_status vdnn_stash_fetch(vdnn_stash* stash, vdnn_stash_handle handle, void* target, void* stream);
// Makes `stream` wait for the fetch: all later work on it may read the target.
vdnn_status vdnn_stash_ready(vdnn_stash* stash, vdnn_stash_handle handle, void* stream);

// Ends one put. After the last drop of a handle, the caller may release source and target in the order of the
// streams that it passed with them. These streams have been made to wait for copies under way. The block of
// host memory is reused only after those copies. The handle is dropped whatever the status is.
vdnn_status vdnn_stash_drop(vdnn_stash* stash, vdnn_stash_handle handle);

// Ends the step although handles are alive, for example those of a graph that is kept. Such handles are
// served on demand.
vdnn_status vdnn_stash_end_step(vdnn_stash* stash);
// Forgets all learned steps: the next step is a first one again.
vdnn_status vdnn_stash_forget(vdnn_stash* stash);

typedef struct vdnn_stash_statistics {
  uint32_t version;             // VDNN_STASH_VERSION, set by the caller
  uint32_t reserved;            // 0
  uint64_t puts;                // calls that handed out or shared a handle
  uint64_t shared;              // of these, answered with an earlier handle
  uint64_t left;                // tensors copied to the host
  uint64_t refused;             // tensors that should have left and stayed, since no page-locked memory was
                                // left within the budget or the system refused it
  uint64_t fetched_ahead;       // tensors copied back before they were read
  uint64_t fetched_late;        // tensors whose fetch began only when they were read
  uint64_t late_when_repeated;  // of these, in steps that repeated a learned one
  uint64_t out_bytes;           // copied to the host
  uint64_t in_bytes;            // copied back
  uint64_t live_handles;        // now
  uint64_t host_bytes;          // page-locked memory now, in use or kept for reuse
  uint64_t host_peak_bytes;
  uint64_t device_peak_bytes;   // the largest in_use_bytes of put and read
  uint64_t planned_peak_bytes;  // the peak that the plan for the latest kind of step expects; 0: no plan;
                                // above the budget if the budget cannot be kept
  uint64_t page_locks;          // blocks of memory that were page-locked
  uint64_t page_locks_when_repeated;  // of these, in steps that repeated a learned one
  uint64_t steps;                     // ended
  uint64_t repeated_steps;            // of these, steps that repeated a learned one
  uint64_t diverged_steps;            // steps that began like a learned one and went on differently
  uint64_t plans;                     // plans made; for a static network one for each kind of step
  uint64_t copy_nanoseconds;          // time of copies if it is measured, else 0
  uint64_t wait_nanoseconds;   // time that the caller's streams waited for copies if it is measured, else 0
  uint64_t planned_out_bytes;  // bytes that leave under the plan for the latest kind of step; fewer leave
                               // if host memory is exhausted, more while the stash cannot tell of which
                               // of several kinds a step is
} vdnn_stash_statistics;

// Sets `version`, and all other members of that version to 0.
vdnn_status vdnn_stash_statistics_init(vdnn_stash_statistics* statistics, uint32_t version);
vdnn_status vdnn_stash_get_statistics(vdnn_stash* stash, vdnn_stash_statistics* statistics);

// The step that was learned last, as JSON that follows docs/learned_step.schema.json; VDNN_INVALID_ARGUMENT
// before the first step has ended. As with snprintf(), `needed` is the size with the terminating zero, and at
// most `capacity` bytes are written. `text` may be null if `capacity` is 0.
vdnn_status vdnn_stash_learned_step(vdnn_stash* stash, char* text, uint64_t capacity, uint64_t* needed);

// A text for the user: the host's budget is exhausted or the system refuses to page-lock memory within it, so
// that tensors stay, or the budget cannot be kept. Returns each text once, with `needed` and `capacity` as
// for vdnn_stash_learned_step(); empty if there is none. If a text exceeds `capacity`, the next call returns
// it again.
vdnn_status vdnn_stash_take_notice(vdnn_stash* stash, char* text, uint64_t capacity, uint64_t* needed);

#ifdef __cplusplus
}
#endif
