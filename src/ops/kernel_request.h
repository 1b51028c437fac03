#pragma once
// What a kernel is compiled from, whatever the device.

#include <cstdint>

#include "vdnn/tape.h"

namespace vdnn::ops {

// `algorithm` is an index into `op.algorithms`.
struct KernelRequest {
  const Tape& tape;
  const Op& op;
  std::uint32_t algorithm = 0;
};

}  // namespace vdnn::ops
