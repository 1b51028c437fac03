#pragma once
// What a collective takes, apart from any library: which devices there are, how fast they reach each other,
// and the better of two algorithms. Bandwidth-bound: the ring (Patarasu and Yuan 2009), in which every device
// sends and receives 2 (n - 1) / n of the bytes, in 2 (n - 1) messages. Latency-bound: the double binary tree
// (Sanders, Speck and Traeff 2009; NCCL since 2.4), 2 times the bytes in 2 log2 n messages one after the
// other. Between machines the same over the network, of what the devices of one machine have reduced and
// scattered among themselves.

#include <cstdint>

namespace vdnn {

// Between two neighbours, each way at once.
struct PeerLink {
  double bytes_per_second = 0;
  double seconds = 0;  // of a message, besides
};

struct CollectiveCosts {
  std::uint32_t devices = 1;   // of a machine
  std::uint32_t machines = 1;  // alike
  PeerLink peers;              // devices of one machine; looked at where there are several
  PeerLink network;            // a machine's, which its devices share; likewise

  std::uint32_t ranks() const { return devices * machines; }
  double all_reduce_seconds(std::uint64_t bytes) const;
  double broadcast_seconds(std::uint64_t bytes) const;
};

}  // namespace vdnn
