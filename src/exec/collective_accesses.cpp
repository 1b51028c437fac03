#include "src/exec/collective_accesses.h"

namespace vdnn {

CollectiveAccesses accesses_of_all_reduce(std::span<const Collective> parts) {
  CollectiveAccesses accesses;
  for (const Collective& part : parts) {
    accesses.reads.push_back({.range = part.range, .version = part.version_before});
    accesses.writes.push_back({.range = part.range, .version = part.version_after});
  }
  return accesses;
}

CollectiveAccesses accesses_of_broadcast(const Collective& collective, bool root) {
  if (root) {
    return {.reads = {{.range = collective.range, .version = collective.version_before}}, .writes = {}};
  }
  return {.reads = {}, .writes = {{.range = collective.range, .version = collective.version_after}}};
}

std::uint64_t total_bytes(std::span<const Collective> parts) {
  std::uint64_t bytes = 0;
  for (const Collective& part : parts) {
    bytes += part.range.bytes;
  }
  return bytes;
}

}  // namespace vdnn
