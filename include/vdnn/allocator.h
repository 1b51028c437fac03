#pragma once
// The stream pool for programs in C, and in whatever calls C: the contract of vdnn/stream_pool.h, which says
// how the pool works and what it guarantees, in opaque handles and status codes.
//
// Every function but those that return text answers with a status, and no exception leaves any of them. What
// has failed has changed nothing, and the next call works; results are written where the status is VDNN_OK
// alone. Null pointers and unknown versions are VDNN_INVALID_ARGUMENT, but for what may be null as said. All
// functions may be called from any thread at any time, but a handle must not be used any more once
// vdnn_allocator_destroy() has been called with it, as memory after free().
//
// A stream is a cudaStream_t, null for the legacy default stream. Sizes are bytes. Blocks begin at multiples
// of 512, as what cudaMalloc() gives.
//
// Structs begin with the version of this header that the program was compiled with: a library that is newer
// reads and writes what was there then, an older one refuses it. Version 2 has appended to the statistics.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VDNN_ALLOCATOR_VERSION 2

typedef struct vdnn_allocator vdnn_allocator;

typedef enum vdnn_status {
  VDNN_OK = 0,
  VDNN_OUT_OF_MEMORY = 1,     // of the device, or of the budget
  VDNN_INVALID_ARGUMENT = 2,  // what the caller passed cannot be
  VDNN_DEVICE_ERROR = 3,      // the device refused
  VDNN_DEVICE_LOST = 4,       // the device is gone for good
  VDNN_NO_HOST_MEMORY = 5,    // for bookkeeping
  VDNN_INTERNAL_ERROR = 6     // none of these; a defect of this library, or a callback that threw
} vdnn_status;

// "out of memory", ...; of a number that is no vdnn_status "unknown status".
const char* vdnn_status_name(int status);

// What the last call of this thread that did not succeed says of it, with the numbers; "" before the first.
// Cut off after some thousand characters; valid until the thread's next call that does not succeed.
const char* vdnn_last_error(void);

typedef enum vdnn_block_life {
  VDNN_TRANSIENT = 0,
  VDNN_PERSISTENT = 1  // lives long, so that it does not lie between blocks that come and go
} vdnn_block_life;

typedef struct vdnn_allocator_options {
  uint32_t version;           // VDNN_ALLOCATOR_VERSION
  int32_t device;             // the GPU, as CUDA counts them; 0 or more
  uint64_t budget_bytes;      // what may be committed, at most; 0: the memory of the device
  uint64_t high_water_bytes;  // while more is committed, frees give memory back; 0: none is given back
  uint64_t small_bytes;       // the largest small block; one granule at most
  uint64_t cache_bytes;       // of a stream; 0: no caches
  uint32_t ends_are_told;     // 1: vdnn_allocator_forget_stream() is called before each stream is destroyed
  uint32_t stack_traces;      // 1: the history has the stack of each event
  uint64_t history_events;    // how many of the latest events the snapshots tell
  const char* name;           // in errors, pictures and snapshots; null: the device's. Copied
  // May be null. The pool has not got `bytes`, which are not more than its budget; a request beyond the
  // budget, which freeing cannot serve, is refused without this call. Called without any lock, so that it may
  // free blocks; returns whether to try again. Must not throw.
  int (*on_exhausted)(void* user_data, uint64_t bytes);
  void* user_data;
} vdnn_allocator_options;

// Fills in the defaults, those of StreamPoolOptions and the GPU 0. `version`: VDNN_ALLOCATOR_VERSION.
vdnn_status vdnn_allocator_options_init(vdnn_allocator_options* options, uint32_t version);

// A pool of its own on `options->device`, or with all defaults where `options` is null.
vdnn_status vdnn_allocator_create(const vdnn_allocator_options* options, vdnn_allocator** allocator);

// Waits for the device and gives all memory back: blocks that are still handed out are gone with it. While a
// stream of the GPU is being captured, memory that others than the remaining streams may use stays mapped
// until the process ends. Null is allowed, and nothing.
vdnn_status vdnn_allocator_destroy(vdnn_allocator* allocator);

// Memory for what `stream` is given from now on, and for whoever is ordered after it. Size 0 is size 1.
// `life` is a vdnn_block_life.
vdnn_status vdnn_allocator_allocate(vdnn_allocator* allocator, uint64_t bytes, void* stream, uint32_t life,
                                    void** address);
// Likewise, ready for any stream and for the host: the host waits where it has to.
vdnn_status vdnn_allocator_allocate_ready(vdnn_allocator* allocator, uint64_t bytes, uint32_t life,
                                          void** address);

// Gives a block back in the order of the stream that it was allocated for. Null is allowed, and nothing, here
// and in the next two. What is not the beginning of a block in use (freed before, in the middle of one, of
// another allocator) is VDNN_INVALID_ARGUMENT.
vdnn_status vdnn_allocator_free(vdnn_allocator* allocator, void* address);
// Likewise in the order of `stream`, which must have been made to come after all other uses.
vdnn_status vdnn_allocator_free_on(vdnn_allocator* allocator, void* address, void* stream);
// The work of all streams that have used it is known to be done.
vdnn_status vdnn_allocator_free_idle(vdnn_allocator* allocator, void* address);
// Nobody knows which streams have used it last, or they do not exist any more: whoever is given the memory
// next waits for the whole device.
vdnn_status vdnn_allocator_free_unordered(vdnn_allocator* allocator, void* address);
// `stream` uses the block, too, at most until it is freed.
vdnn_status vdnn_allocator_used_on(vdnn_allocator* allocator, void* address, void* stream);
// To be called before a stream is destroyed. One that the pool does not know is no error.
vdnn_status vdnn_allocator_forget_stream(vdnn_allocator* allocator, void* stream);

// Whether an address, null among them, lies in the pool's address space: 1 or 0.
vdnn_status vdnn_allocator_owns(vdnn_allocator* allocator, const void* address, int* owns);
// Of a block in use, as it was asked for.
vdnn_status vdnn_allocator_block_bytes(vdnn_allocator* allocator, const void* address, uint64_t* bytes);

// The stream that a block in use was allocated for, which may have ended since. `has_stream`: 0 for those of
// vdnn_allocator_allocate_ready(), which have none, else 1 (null is the legacy default stream).
vdnn_status vdnn_allocator_block_stream(vdnn_allocator* allocator, const void* address, void** stream,
                                        int* has_stream);

// The unit in which memory is committed, and how much may be committed at most, a multiple of it.
vdnn_status vdnn_allocator_granule_bytes(vdnn_allocator* allocator, uint64_t* bytes);
vdnn_status vdnn_allocator_budget_bytes(vdnn_allocator* allocator, uint64_t* bytes);

// Commits memory until it is `bytes`, so that requests need not wait for the device to map it.
// VDNN_OUT_OF_MEMORY where budget or device have not got as much.
vdnn_status vdnn_allocator_reserve(vdnn_allocator* allocator, uint64_t bytes);

// Gives free memory back to the device until at most `keep_bytes` are committed, waiting on the host for work
// on it. `released`, which may be null: by how much less is committed.
vdnn_status vdnn_allocator_trim(vdnn_allocator* allocator, uint64_t keep_bytes, uint64_t* released);

// How something that is added and removed has developed; `peak` since vdnn_allocator_reset_peaks().
typedef struct vdnn_allocator_figure {
  uint64_t current;
  uint64_t peak;
  uint64_t added;    // ever
  uint64_t removed;  // ever
} vdnn_allocator_figure;

// Bytes, but for `blocks`; as PoolFigures.
typedef struct vdnn_allocator_figures {
  vdnn_allocator_figure blocks;     // handed out
  vdnn_allocator_figure requested;  // handed out, as asked
  vdnn_allocator_figure allocated;  // handed out, rounding included
  vdnn_allocator_figure active;     // handed out, or in the cache of a stream; not of a single stream
  vdnn_allocator_figure reserved;   // committed; not of a single stream
} vdnn_allocator_figures;

// As StreamPoolStatistics, which says how exact they are.
typedef struct vdnn_allocator_statistics {
  uint32_t version;   // VDNN_ALLOCATOR_VERSION, set by the caller
  uint32_t reserved;  // 0
  vdnn_allocator_figures all;
  vdnn_allocator_figures small_blocks;
  vdnn_allocator_figures large_blocks;
  vdnn_allocator_figures persistent_blocks;
  // Of the whole pool alone:
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
  uint64_t freed_unordered;  // blocks, by vdnn_allocator_free_unordered()
  uint64_t events_held;      // now
  uint64_t streams_tracked;  // now
} vdnn_allocator_statistics;

// All that `version` has is 0 but for the version. `version`: VDNN_ALLOCATOR_VERSION.
vdnn_status vdnn_allocator_statistics_init(vdnn_allocator_statistics* statistics, uint32_t version);
vdnn_status vdnn_allocator_get_statistics(vdnn_allocator* allocator, vdnn_allocator_statistics* statistics);
// Of the blocks that were allocated for one stream; all 0 for one that the pool does not know.
vdnn_status vdnn_allocator_get_stream_statistics(vdnn_allocator* allocator, void* stream,
                                                 vdnn_allocator_statistics* statistics);
vdnn_status vdnn_allocator_reset_peaks(vdnn_allocator* allocator);

// Text, as snprintf() gives it: `needed` bytes with the zero at its end, of which at most `capacity` are
// written, the last of them a zero. `text` may be null where `capacity` is 0. Since the pool may change
// meanwhile, a second call may need more than the first one said.
//
// For people: what there is of each kind, and where the holes are.
vdnn_status vdnn_allocator_picture(vdnn_allocator* allocator, char* text, uint64_t capacity,
                                   uint64_t* needed);
// JSON after docs/pool_snapshot.schema.json.
vdnn_status vdnn_allocator_snapshot(vdnn_allocator* allocator, char* text, uint64_t capacity,
                                    uint64_t* needed);
// With the keys that PyTorch's memory visualiser reads (vdnn/pool_snapshot.h), as of the GPU `device`.
vdnn_status vdnn_allocator_torch_snapshot(vdnn_allocator* allocator, uint32_t device, char* text,
                                          uint64_t capacity, uint64_t* needed);

#ifdef __cplusplus
}
#endif
