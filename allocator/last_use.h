#pragma once
// A check that both pools make before they take a block back.

#include "vdnn/device.h"

namespace vdnn {

// Throws InvalidArgument when `last_use` names a submission that has not been made. Found when the block is
// freed, since it would otherwise fail whoever is handed the block next.
void check_last_use(const Device& device, const Frontier& last_use);

}  // namespace vdnn
