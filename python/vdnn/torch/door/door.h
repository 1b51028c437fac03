#pragma once
// The functions of tier "native" that Python calls (ctypes). Functions that can fail return 0 on success and
// 1 on failure, with a text in vdnn_door_last_error(). They throw no exceptions.

#include <cstddef>
#include <cstdint>

#include "vdnn/stash.h"

#pragma GCC visibility push(default)
extern "C" {

typedef struct vdnn_door_hooks vdnn_door_hooks;

// Functions of libvdnn_torch.so, whose pools serve PyTorch's GPU memory.
typedef struct vdnn_door_pool {
  void* (*get_base_allocation)(void* block, size_t* bytes);
  void (*record_stream)(void* block, void* stream);
  void (*allocated)(int device, vdnn_allocator_figure* allocated);
} vdnn_door_pool;

// The text of this thread's last failure.
const char* vdnn_door_last_error();

// Loads the functions of the stash from the library at `path`, and installs the hooks in PyTorch's autograd
// engine. The hooks do nothing until vdnn_door_start(). Call vdnn_door_open() once per process.
int vdnn_door_open(const char* path);

// Passes each notice of a stash for the user (vdnn_stash_take_notice()) to `log`, on the thread that saves a
// tensor. Call it before any hooks are started.
void vdnn_door_log_with(void (*log)(const char* text));

// Whether C++ can access GPU streams and memory of this PyTorch without PyTorch's CUDA libraries.
int vdnn_door_knows_gpus();

// Makes hooks for tensors of at least `min_bytes` on GPUs, or on the CPU if `options->device` is
// VDNN_STASH_HOST. Each device gets a stash with `options` when its first tensor is saved. `pool`: null if
// PyTorch's memory does not come from vdnn's pools. The hooks live as long as the process.
vdnn_door_hooks* vdnn_door_create(const vdnn_stash_options* options, uint64_t min_bytes,
                                  const vdnn_door_pool* pool);
// Passes tensors that any thread saves through `hooks` from now on; null: through no hooks.
void vdnn_door_start(vdnn_door_hooks* hooks);
// Returns the stash of a device; null if no tensor of the device has been saved so far. `device`: 0 for the
// CPU.
vdnn_stash* vdnn_door_stash(vdnn_door_hooks* hooks, int device);

// Counts PyTorch's CPU memory from now on; `already` bytes are in use. `poison`, for tests: if 1, freed
// memory is filled, so that reads of freed memory are detected.
void vdnn_door_count_cpu(int64_t already, int poison);
int64_t vdnn_door_cpu_bytes();
int64_t vdnn_door_cpu_peak();
void vdnn_door_reset_cpu_peak();
// Returns the peak since its last call, for the stash of tier "python".
int64_t vdnn_door_take_recent_cpu_peak();
}
#pragma GCC visibility pop
