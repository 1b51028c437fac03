#pragma once
// A check that the device pool and the pinned pool make when a block is freed.

#include "vdnn/device.h"

namespace vdnn {

// Throws InvalidArgument when `last_use` names a submission that has not been made. The mistake is reported
// to the caller that frees the block; otherwise the next user of the block would fail.
void check_last_use(const Device& device, const Frontier& last_use);

}  // namespace vdnn
