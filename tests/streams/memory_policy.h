#pragma once
// The host's NUMA node from which pages come, as the system reports it.

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <optional>

#include "streams/mapping.h"

namespace vdnn {

struct MemoryPolicy {
  int mode = 0;             // MPOL_...
  unsigned long nodes = 0;  // one bit per node
};

// The node of the page at `address`, or nothing if the system does not report it.
inline std::optional<MemoryPolicy> memory_policy(std::uint64_t address) {
  MemoryPolicy policy;
  constexpr unsigned long kNodes = 1024;
  std::array<unsigned long, kNodes / 64> nodes{};
  if (syscall(SYS_get_mempolicy, &policy.mode, nodes.data(), kNodes, address, MPOL_F_ADDR) != 0) {
    return std::nullopt;
  }
  policy.nodes = nodes[0];
  return policy;
}

// True if the system permits a process to set a memory policy; containers may forbid it.
inline bool may_prefer_nodes() {
  const Mapping mapping = Mapping::make(kPageBytes, kPageBytes, Mapping::Kind::kUntouched).value();
  const unsigned long first = 1;
  return syscall(SYS_mbind, mapping.range().begin, kPageBytes, MPOL_PREFERRED, &first, 64, 0) == 0 &&
         memory_policy(mapping.range().begin).has_value();
}

}  // namespace vdnn
