#pragma once
// The communicator of devices whose memory the host can address. It sends messages through any Transport; see
// vdnn/process_group.h.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/dist/transport.h"
#include "vdnn/process_group.h"

namespace vdnn {

// The state that all communicators of a process group share.
struct GroupFacts {
  std::shared_ptr<Transport> transport;
  std::vector<std::string> hosts;    // by rank
  std::atomic<bool> failed = false;  // an operation has failed, so some ranks may no longer take part
  std::atomic<bool> told = false;    // another rank has reported why it gives up
};

// The communicator's messages use `channel`. Nothing else may use that channel.
std::unique_ptr<Communicator> make_host_communicator(Device& device, const MpiOptions& options,
                                                     std::shared_ptr<GroupFacts> group,
                                                     std::uint32_t channel);

}  // namespace vdnn
