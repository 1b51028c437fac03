#pragma once
// The arguments from which a kernel is compiled, on any device.

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
