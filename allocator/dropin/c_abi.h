#pragma once
// Pools of the C interface over any backend: for tests, and for drop-ins that are written in C++.

#include <memory>

#include "allocator/dropin/c_status.h"
#include "vdnn/allocator.h"
#include "vdnn/pool_backend.h"

namespace vdnn {

// Like vdnn_allocator_create(), but creates the pool over `backend`. Ignores options->device; stream handles
// are those of the backend.
vdnn_status create_allocator(std::unique_ptr<PoolBackend> backend, const vdnn_allocator_options* options,
                             vdnn_allocator** allocator) noexcept;

}  // namespace vdnn
