#pragma once
// A process group whose messages go through any Transport; see vdnn/process_group.h.

#include <memory>

#include "src/dist/transport.h"
#include "vdnn/process_group.h"

namespace vdnn {

// Throws DeviceError if the other ranks do not join within start_seconds.
std::unique_ptr<ProcessGroup> make_process_group(std::shared_ptr<Transport> transport,
                                                 const ProcessGroupOptions& options);

}  // namespace vdnn
