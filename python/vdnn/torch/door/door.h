#pragma once
// The functions of tier "native" that Python calls (ctypes). Functions that can fail answer 0, or 1 with a
// text in vdnn_door_last_error(). No exception leaves any of them.

#include <cstddef>
#include <cstdint>

#include "vdnn/stash.h"

#pragma GCC visibility push(default)
extern "C" {

typedef struct vdnn_door_hooks vdnn_door_hooks;

// Functions of libvdnn_torch.so, from whose pools PyTorch's GPU memory is.
typedef struct vdnn_door_pool {
  void* (*get_base_allocation)(void* block, size_t* bytes);
  void (*record_stream)(void* block, void* stream);
  void (*allocated)(int device, vdnn_allocator_figure* allocated);
} vdnn_door_pool;

// Of the last failure of this thread.
const char* vdnn_door_last_error();

// Takes the functions of the stash from the library at `path`, and puts the hooks into PyTorch's autograd
// engine, where they do nothing until vdnn_door_start(). Once in a process.
int vdnn_door_open(const char* path);

// `log` gets each notice of a stash for the user (vdnn_stash_take_notice()), on whichever thread saves a
// tensor. Before any hooks are started.
void vdnn_door_log_with(void (*log)(const char* text));

// Whether this PyTorch tells C++ without its CUDA libraries about streams and memory of GPUs.
int vdnn_door_knows_gpus();

// Hooks for tensors of at least `min_bytes` on GPUs, or on the CPU where `options->device` is
// VDNN_STASH_HOST. A stash with `options` is made for each device when its first tensor is saved. `pool`:
// null where PyTorch's memory is not of vdnn's pools. The hooks live as long as the process.
vdnn_door_hooks* vdnn_door_create(const vdnn_stash_options* options, uint64_t min_bytes,
                                  const vdnn_door_pool* pool);
// Tensors that any thread saves go through `hooks`; null: through none.
void vdnn_door_start(vdnn_door_hooks* hooks);
// Null if no tensor of the device was saved so far. `device`: 0 for the CPU.
vdnn_stash* vdnn_door_stash(vdnn_door_hooks* hooks, int device);

// From now on what PyTorch takes on the CPU is counted; `already` bytes are in use. `poison`: 1 for tests,
// which fill what is freed, so that a read of freed memory shows.
void vdnn_door_count_cpu(int64_t already, int poison);
int64_t vdnn_door_cpu_bytes();
int64_t vdnn_door_cpu_peak();
void vdnn_door_reset_cpu_peak();
// The peak since its last call, which tier "python" gives its stash.
int64_t vdnn_door_take_recent_cpu_peak();
}
#pragma GCC visibility pop
