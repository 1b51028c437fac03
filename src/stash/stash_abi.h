#pragma once
// The C interface of the stash over any backend: for tests, and for adapters that are written in C++.

#include <memory>

#include "vdnn/stash.h"
#include "vdnn/stash_backend.h"

namespace vdnn {

// Does the same as vdnn_stash_create(), but over `backend`, whose streams the caller uses. options->device
// has no effect.
vdnn_status create_stash(std::unique_ptr<StashBackend> backend, const vdnn_stash_options* options,
                         vdnn_stash** stash) noexcept;

}  // namespace vdnn
