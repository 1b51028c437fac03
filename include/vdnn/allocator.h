#pragma once
// The stream pool for programs in C and in languages that call C, with opaque handles and status codes. How
// the pool works, and what it guarantees, is described in vdnn/stream_pool.h.
//
// Every function except vdnn_status_name() and vdnn_last_error() returns a status, and no exception leaves
// any function. A call that fails has changed nothing, and the next call works. Results are written only if
// the status is VDNN_OK. Null pointers, except where null is allowed, and unknown versions return
// VDNN_INVALID_ARGUMENT. All functions may be called from any thread at any time. A handle must not be used
// after vdnn_allocator_destroy() has been called with it.
//
// A stream is a cudaStream_t, null for the legacy default stream. Sizes are bytes. Blocks begin at multiples
// of 512, as those of cudaMalloc() do.
//
// Structs begin with the version of this header that the program was compiled with. A newer library reads and
// writes only the members of that version; an older library refuses the struct. Version 2 has appended
// members to the statistics.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VDNN_ALLOCATOR_VERSION 2

typedef struct vdnn_allocator vdnn_allocator;

typedef enum vdnn_status {
  VDNN_OK = 0,
  VDNN_OUT_OF_MEMORY = 1,     // the device or the budget does not have the memory
  VDNN_INVALID_ARGUMENT = 2,  // a mistake of the caller
  VDNN_DEVICE_ERROR = 3,      // the device refused
  VDNN_DEVICE_LOST = 4,       // the device cannot be used any more
  VDNN_NO_HOST_MEMORY = 5,    // the heap has no memory for bookkeeping
  VDNN_INTERNAL_ERROR = 6     // a defect of this library, or a callback that threw
} vdnn_status;

// The name of a status, for example "out of memory"; "unknown status" for a number that is not a vdnn_status.
const char* vdnn_status_name(int status);

// The message of this thread's last failed call, with the numbers; "" if none has failed. Cut off after a few
// thousand characters; valid until the thread's next call that fails.
const char* vdnn_last_error(void);

typedef enum vdnn_block_life {
  VDNN_TRANSIENT = 0,
  VDNN_PERSISTENT = 1  // long-lived: kept apart from short-lived blocks
} vdnn_block_life;

typedef struct vdnn_allocator_options {
  uint32_t version;           // VDNN_ALLOCATOR_VERSION
  int32_t device;             // CUDA's number of the GPU, 0 or more
  uint64_t budget_bytes;      // most bytes that may be committed; 0: the memory of the device
  uint64_t high_water_bytes;  // while more is committed, frees give memory back; 0: they never do
  uint64_t small_bytes;       // the largest small block; one granule at most
  uint64_t cache_bytes;       // most bytes in the cache of one stream; 0: no caches
  uint32_t ends_are_told;     // 1: vdnn_allocator_forget_stream() is called before each stream is destroyed
  uint32_t stack_traces;      // 1: the history has the stack of each event
  uint64_t history_events;    // how many of the latest events the snapshots contain
  const char* name;           // shown in errors, pictures and snapshots; copied; null: the device's name
  // May be null. The pool calls it, without any lock, if `bytes` are not available, so that the program can
  // free blocks. Returns nonzero to try again. Must not throw. A request that is larger than the budget is
  // refused without this call, since freeing cannot serve it.
  int (*on_exhausted)(void* user_data, uint64_t bytes);
  void* user_data;
} vdnn_allocator_options;

// Fills in the defaults: those of StreamPoolOptions, and GPU 0. `version`: VDNN_ALLOCATOR_VERSION.
vdnn_status vdnn_allocator_options_init(vdnn_allocator_options* options, uint32_t version);

// Makes a pool on `options->device`, or with all defaults if `options` is null.
vdnn_status vdnn_allocator_create(const vdnn_allocator_options* options, vdnn_allocator** allocator);

// Waits for the device and gives all memory back, including that of blocks in use. While a stream of the GPU
// is being captured, some work cannot be waited for. If such work may still use a block, all memory of the
// pool stays mapped until the process ends. Null is allowed and does nothing.
vdnn_status vdnn_allocator_destroy(vdnn_allocator* allocator);

// Allocates a block for work submitted to `stream` from now on, and for streams that are ordered after it.
// Size 0 is size 1. `life` is a vdnn_block_life.
vdnn_status vdnn_allocator_allocate(vdnn_allocator* allocator, uint64_t bytes, void* stream, uint32_t life,
                                    void** address);
// Like vdnn_allocator_allocate(), but any stream and the host may use the block immediately. The host waits
// if necessary.
vdnn_status vdnn_allocator_allocate_ready(vdnn_allocator* allocator, uint64_t bytes, uint32_t life,
                                          void** address);

// Frees a block in the order of the stream that it was allocated for. Null is allowed and does nothing, in
// this function and in the next three. An address at which no block in use begins (freed earlier, in the
// middle of a block, of another allocator) returns VDNN_INVALID_ARGUMENT.
vdnn_status vdnn_allocator_free(vdnn_allocator* allocator, void* address);
// Frees a block in the order of `stream`, which must be ordered after all uses of the block on other streams.
vdnn_status vdnn_allocator_free_on(vdnn_allocator* allocator, void* address, void* stream);
// Frees a block whose uses are all known to be done.
vdnn_status vdnn_allocator_free_idle(vdnn_allocator* allocator, void* address);
// Frees a block whose last users are unknown, or do not exist any more: the next user of the memory waits for
// the whole device.
vdnn_status vdnn_allocator_free_unordered(vdnn_allocator* allocator, void* address);
// Declares that `stream` may use the block, too, until the block is freed.
vdnn_status vdnn_allocator_used_on(vdnn_allocator* allocator, void* address, void* stream);
// Call this before you destroy a stream. A stream that the pool does not know is no error.
vdnn_status vdnn_allocator_forget_stream(vdnn_allocator* allocator, void* stream);

// Whether an address, which may be null, lies in the pool's address space: 1 or 0.
vdnn_status vdnn_allocator_owns(vdnn_allocator* allocator, const void* address, int* owns);
// The size of a block in use, as requested.
vdnn_status vdnn_allocator_block_bytes(vdnn_allocator* allocator, const void* address, uint64_t* bytes);

// The stream that a block in use was allocated for, which may have ended since. `has_stream`: 0 for blocks of
// vdnn_allocator_allocate_ready(), which have none; otherwise 1 (null is the legacy default stream).
vdnn_status vdnn_allocator_block_stream(vdnn_allocator* allocator, const void* address, void** stream,
                                        int* has_stream);

// The size of a granule, the unit in which memory is committed.
vdnn_status vdnn_allocator_granule_bytes(vdnn_allocator* allocator, uint64_t* bytes);
// The most bytes that may be committed: whole granules.
vdnn_status vdnn_allocator_budget_bytes(vdnn_allocator* allocator, uint64_t* bytes);

// Commits memory up to a total of `bytes`, so that requests need not wait for the device to map memory.
// Returns VDNN_OUT_OF_MEMORY if the budget or the device does not have that much.
vdnn_status vdnn_allocator_reserve(vdnn_allocator* allocator, uint64_t bytes);

// Gives free memory back to the device until at most `keep_bytes` are committed; the host waits for work on
// that memory. `released`, which may be null: the bytes given back.
vdnn_status vdnn_allocator_trim(vdnn_allocator* allocator, uint64_t keep_bytes, uint64_t* released);

// A quantity that grows and shrinks. `peak` is its largest value since vdnn_allocator_reset_peaks().
typedef struct vdnn_allocator_figure {
  uint64_t current;
  uint64_t peak;
  uint64_t added;    // in total
  uint64_t removed;  // in total
} vdnn_allocator_figure;

// The members of PoolFigures. All but `blocks` are in bytes. In the statistics of a single stream, `active`
// and `reserved` are 0.
typedef struct vdnn_allocator_figures {
  vdnn_allocator_figure blocks;     // handed out
  vdnn_allocator_figure requested;  // handed out, as requested
  vdnn_allocator_figure allocated;  // handed out, rounding included
  vdnn_allocator_figure active;     // handed out, or in the cache of a stream
  vdnn_allocator_figure reserved;   // committed
} vdnn_allocator_figures;

// The members of StreamPoolStatistics, whose comment describes how exact they are.
typedef struct vdnn_allocator_statistics {
  uint32_t version;   // VDNN_ALLOCATOR_VERSION, set by the caller
  uint32_t reserved;  // 0
  vdnn_allocator_figures all;
  vdnn_allocator_figures small_blocks;
  vdnn_allocator_figures large_blocks;
  vdnn_allocator_figures persistent_blocks;
  // Figures of the whole pool. In the statistics of a single stream only reused_from_cache is set:
  uint64_t reused_from_cache;
  uint64_t reused_at_once;
  uint64_t reused_after_wait;
  uint64_t growths;
  uint64_t events_recorded;
  uint64_t stream_waits;
  uint64_t host_waits;
  uint64_t device_waits;
  uint64_t retries;
  uint64_t failures;
  // Since version 2:
  uint64_t freed_unordered;  // blocks that vdnn_allocator_free_unordered() has freed
  uint64_t events_held;      // at present
  uint64_t streams_tracked;  // at present
} vdnn_allocator_statistics;

// Sets `version`, and all other members of that version to 0. `version`: VDNN_ALLOCATOR_VERSION.
vdnn_status vdnn_allocator_statistics_init(vdnn_allocator_statistics* statistics, uint32_t version);
vdnn_status vdnn_allocator_get_statistics(vdnn_allocator* allocator, vdnn_allocator_statistics* statistics);
// Figures of the blocks that were allocated for one stream; all 0 for an unknown stream.
vdnn_status vdnn_allocator_get_stream_statistics(vdnn_allocator* allocator, void* stream,
                                                 vdnn_allocator_statistics* statistics);
vdnn_status vdnn_allocator_reset_peaks(vdnn_allocator* allocator);

// The next three functions write text as snprintf() does: `needed` is the text's size in bytes with the
// terminating zero. At most `capacity` bytes are written, the last one a zero. `text` may be null if
// `capacity` is 0. Since the pool may change meanwhile, a second call may need more than the first.
//
// For people: the memory of each kind and the largest holes.
vdnn_status vdnn_allocator_picture(vdnn_allocator* allocator, char* text, uint64_t capacity,
                                   uint64_t* needed);
// JSON that follows docs/pool_snapshot.schema.json.
vdnn_status vdnn_allocator_snapshot(vdnn_allocator* allocator, char* text, uint64_t capacity,
                                    uint64_t* needed);
// JSON with the keys that PyTorch's memory visualiser reads (vdnn/pool_snapshot.h), for the GPU `device`.
vdnn_status vdnn_allocator_torch_snapshot(vdnn_allocator* allocator, uint32_t device, char* text,
                                          uint64_t capacity, uint64_t* needed);

#ifdef __cplusplus
}
#endif
