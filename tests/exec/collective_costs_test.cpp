// Costs of collectives, compared with figures computed by hand.

#include "vdnn/collective_costs.h"

#include <gtest/gtest.h>

namespace vdnn::collective_costs_test {
namespace {

constexpr PeerLink kPeers{.bytes_per_second = 100e9, .seconds = 2e-6};
constexpr PeerLink kNetwork{.bytes_per_second = 10e9, .seconds = 10e-6};
constexpr std::uint64_t kLarge = 1'000'000'000;
constexpr std::uint64_t kSmall = 1000;

CollectiveCosts costs(std::uint32_t devices, std::uint32_t machines = 1) {
  return {.devices = devices, .machines = machines, .peers = kPeers, .network = kNetwork};
}

TEST(CollectiveCosts, OneDeviceHasNobodyToWaitFor) {
  EXPECT_EQ(costs(1).ranks(), 1U);
  EXPECT_EQ(costs(1).all_reduce_seconds(kLarge), 0);
  EXPECT_EQ(costs(1).broadcast_seconds(kLarge), 0);
}

// 2 * 3/4 of 1 GB at 100 GB/s takes 15 ms, plus six messages of 2 us.
TEST(CollectiveCosts, ALargeBufferGoesAroundARing) {
  EXPECT_DOUBLE_EQ(costs(4).all_reduce_seconds(kLarge), 15e-3 + 12e-6);
}

// 2 * 1000 bytes at 100 GB/s takes 20 ns, plus 2 * 3 messages of 2 us; a ring of eight would need fourteen.
TEST(CollectiveCosts, ASmallBufferGoesUpAndDownATree) {
  EXPECT_DOUBLE_EQ(costs(8).all_reduce_seconds(kSmall), 20e-9 + 12e-6);
  EXPECT_LT(costs(8).all_reduce_seconds(kSmall), 14 * kPeers.seconds);
}

// A tree of five needs three rounds, like a tree of eight.
TEST(CollectiveCosts, ATreeHasWholeRounds) {
  EXPECT_DOUBLE_EQ(costs(5).all_reduce_seconds(kSmall), costs(8).all_reduce_seconds(kSmall));
  EXPECT_LT(costs(4).all_reduce_seconds(kSmall), costs(5).all_reduce_seconds(kSmall));
}

// With one device per machine, the same ring runs over the network: 2 * 3/4 of 1 GB at 10 GB/s, and six
// messages of 10 us.
TEST(CollectiveCosts, MachinesOfOneDeviceGoOverTheNetworkAlone) {
  EXPECT_DOUBLE_EQ(costs(1, 4).all_reduce_seconds(kLarge), 150e-3 + 60e-6);
}

// Within a machine, 2 * 3/4 of 1 GB at 100 GB/s and six messages. Between two machines, 2 * 1/2 of 1 GB at 10
// GB/s and two messages, however many devices share the network.
TEST(CollectiveCosts, MachinesReduceWhatTheirDevicesHaveScattered) {
  EXPECT_EQ(costs(4, 2).ranks(), 8U);
  EXPECT_DOUBLE_EQ(costs(4, 2).all_reduce_seconds(kLarge), 15e-3 + 12e-6 + 100e-3 + 20e-6);
  EXPECT_DOUBLE_EQ(costs(8, 2).all_reduce_seconds(kLarge), 17.5e-3 + 28e-6 + 100e-3 + 20e-6);
}

// Once down a tree: 1 GB and two rounds among four devices, then one round between two machines.
TEST(CollectiveCosts, ABroadcastGoesDownATree) {
  EXPECT_DOUBLE_EQ(costs(4).broadcast_seconds(kLarge), 10e-3 + 4e-6);
  EXPECT_DOUBLE_EQ(costs(4, 2).broadcast_seconds(kLarge), 10e-3 + 4e-6 + 100e-3 + 10e-6);
}

}  // namespace
}  // namespace vdnn::collective_costs_test
