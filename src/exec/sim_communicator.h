#pragma once
// The communicator of a simulated rank. A collective occupies its stream for the time that collective_costs.h
// predicts. All simulated ranks do the same at the same time, so this rank represents all ranks, and no data
// are sent.

#include <memory>

#include "vdnn/collective_costs.h"
#include "vdnn/communicator.h"

namespace vdnn {

std::unique_ptr<Communicator> make_sim_communicator(Device& device, const CollectiveCosts& costs);

}  // namespace vdnn
