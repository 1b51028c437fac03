#pragma once
// The C interface of a pool over any backend: for tests, and for drop-ins that are written in C++.

#include <memory>

#include "allocator/dropin/c_status.h"
#include "vdnn/allocator.h"
#include "vdnn/pool_backend.h"

namespace vdnn {

// As vdnn_allocator_create(), but over `backend`: options->device is ignored, and streams are the backend's.
vdnn_status create_allocator(std::unique_ptr<PoolBackend> backend, const vdnn_allocator_options* options,
                             vdnn_allocator** allocator) noexcept;

}  // namespace vdnn
