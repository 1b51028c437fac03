#pragma once
// Model of the time of a collective, apart from any library. It knows the devices and the links between them,
// and uses the faster of two algorithms:
//
// * Ring (bandwidth-bound; Patarasu and Yuan 2009): every device sends and receives 2 (n - 1) / n of the
//   bytes in 2 (n - 1) messages.
// * Double binary tree (latency-bound; Sanders, Speck and Traeff 2009; NCCL since 2.4): 2 times the bytes in
//   2 log2 n messages one after the other.
//
// The devices of one machine first reduce and scatter among themselves. Machines then exchange the parts over
// the network by the same algorithms.

#include <cstdint>

namespace vdnn {

// A link between two neighbours, with the rate of each direction while both are in use.
struct PeerLink {
  double bytes_per_second = 0;
  double seconds = 0;  // added per message
};

struct CollectiveCosts {
  std::uint32_t devices = 1;   // per machine
  std::uint32_t machines = 1;  // all with the same number of devices
  PeerLink peers;              // between devices of one machine; used if it has several
  PeerLink network;            // of a machine, shared by its devices; used if there are several machines

  std::uint32_t ranks() const { return devices * machines; }
  double all_reduce_seconds(std::uint64_t bytes) const;
  double broadcast_seconds(std::uint64_t bytes) const;
};

}  // namespace vdnn
