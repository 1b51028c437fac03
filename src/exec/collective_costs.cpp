#include "vdnn/collective_costs.h"

#include <algorithm>
#include <bit>

namespace vdnn {

namespace {

double rounds(std::uint32_t count) {
  return static_cast<double>(std::bit_width(count - 1));  // log2, rounded up
}

// `halves`: 2 for an all-reduce; 1 for a reduce-scatter or an all-gather, which are its halves.
double ring_seconds(std::uint32_t count, double bytes, const PeerLink& link, double halves) {
  const double others = static_cast<double>(count) - 1;
  return halves *
         (others / static_cast<double>(count) * bytes / link.bytes_per_second + others * link.seconds);
}

double tree_seconds(std::uint32_t count, double bytes, const PeerLink& link, double halves) {
  return halves * (bytes / link.bytes_per_second + rounds(count) * link.seconds);
}

double all_reduce_seconds_among(std::uint32_t count, double bytes, const PeerLink& link) {
  return count < 2 ? 0 : std::min(ring_seconds(count, bytes, link, 2), tree_seconds(count, bytes, link, 2));
}

}  // namespace

double CollectiveCosts::all_reduce_seconds(std::uint64_t bytes) const {
  const auto all = static_cast<double>(bytes);
  if (machines < 2 || devices < 2) {
    return all_reduce_seconds_among(devices, all, peers) + all_reduce_seconds_among(machines, all, network);
  }
  // After a reduce-scatter in each machine, each device reduces its part with the corresponding devices of
  // the other machines. The parts of all devices of a machine pass through that machine's network link.
  return ring_seconds(devices, all, peers, 2) + all_reduce_seconds_among(machines, all, network);
}

double CollectiveCosts::broadcast_seconds(std::uint64_t bytes) const {
  const auto all = static_cast<double>(bytes);
  return (devices < 2 ? 0 : tree_seconds(devices, all, peers, 1)) +
         (machines < 2 ? 0 : tree_seconds(machines, all, network, 1));
}

}  // namespace vdnn
