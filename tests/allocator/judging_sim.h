#pragma once
// A `sim` device with streams, for programs whose order it judges.

#include <memory>
#include <string>

#include "vdnn/sim_device.h"

namespace vdnn {

inline std::unique_ptr<SimDevice> make_sim_with_streams(const SimDeviceOptions& options, StreamId streams) {
  auto device = make_sim_device(options);
  for (StreamId stream = 0; stream < streams; ++stream) {
    device->create_stream("stream " + std::to_string(stream));
  }
  return device;
}

// The text of the first finding; empty if there is none.
inline std::string first_finding(const SimDevice& device) {
  return device.findings().empty() ? "" : device.findings().front().text;
}

}  // namespace vdnn
