#pragma once
// Pools of device memory and page-locked memory, and the stash of saved tensors, for programs with
// kernels of their own; in C++ and in C.

// IWYU pragma: begin_exports
#include "vdnn/allocation_log.h"
#include "vdnn/allocator.h"
#include "vdnn/device_pool.h"
#include "vdnn/logged_pool.h"
#include "vdnn/pinned_pool.h"
#include "vdnn/pinned_resource.h"
#include "vdnn/pool_snapshot.h"
#include "vdnn/stash.h"
#include "vdnn/stream_pool.h"
#include "vdnn/tensor_stash.h"
// IWYU pragma: end_exports
