#pragma once
// The communicator of devices whose memory the host can address, over any transport; see
// vdnn/process_group.h.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/dist/transport.h"
#include "vdnn/process_group.h"

namespace vdnn {

// State of a group that its communicators share.
struct GroupFacts {
  std::shared_ptr<Transport> transport;
  std::vector<std::string> hosts;    // by rank
  std::atomic<bool> failed = false;  // something has failed; not all ranks may take part any more
  std::atomic<bool> told = false;    // another rank has reported why it gives up
};

// Its messages use `channel`, which nothing else may use.
std::unique_ptr<Communicator> make_host_communicator(Device& device, const MpiOptions& options,
                                                     std::shared_ptr<GroupFacts> group,
                                                     std::uint32_t channel);

}  // namespace vdnn
