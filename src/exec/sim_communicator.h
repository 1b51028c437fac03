#pragma once
// The communicator of a simulated rank: its collectives take what collective_costs.h says, on the stream that
// they are given to. All ranks of a simulation are alike and do the same at the same time, so that one stands
// for all of them and nothing is moved.

#include <memory>

#include "vdnn/collective_costs.h"
#include "vdnn/communicator.h"

namespace vdnn {

std::unique_ptr<Communicator> make_sim_communicator(Device& device, const CollectiveCosts& costs);

}  // namespace vdnn
