#pragma once
// The communicator of devices whose memory the host addresses, over any transport; see vdnn/process_group.h.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/dist/transport.h"
#include "vdnn/process_group.h"

namespace vdnn {

// What the communicators of a group know of it.
struct GroupFacts {
  std::shared_ptr<Transport> transport;
  std::vector<std::string> hosts;    // by rank
  std::atomic<bool> failed = false;  // something of it has; nobody may expect all ranks any more
  std::atomic<bool> told = false;    // another rank has said why it gives up
};

// On messages under `channel`, which nothing else uses.
std::unique_ptr<Communicator> make_host_communicator(Device& device, const MpiOptions& options,
                                                     std::shared_ptr<GroupFacts> group,
                                                     std::uint32_t channel);

}  // namespace vdnn
