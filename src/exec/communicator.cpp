#include "vdnn/communicator.h"

#include "vdnn/error.h"

namespace vdnn {

Point Communicator::all_reduce(StreamId stream, std::span<const Collective> parts, Reduction reduction) {
  if (parts.empty()) {
    throw InvalidArgument("an all-reduce of no range");
  }
  for (const Collective& part : parts.first(parts.size() - 1)) {
    all_reduce(stream, part, reduction);
  }
  return all_reduce(stream, parts.back(), reduction);
}

}  // namespace vdnn
