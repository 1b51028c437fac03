// A random order respects streams and waits, is the same for the same seed, and varies with the seed.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/streams/sim_fixture.h"

namespace vdnn::sim_random_order_test {
namespace {

SimDeviceOptions ordered_by(std::uint64_t seed) {
  SimDeviceOptions options = round_options();
  options.order_seed = seed;
  return options;
}

// Pairs of names; the first must run earlier than the second.
using Constraints = std::vector<std::pair<std::string, std::string>>;

// Submits 40 pieces of work to four streams, with random waits and some waits of the host. Equal values of
// `program` submit the same work. Returns the required order.
Constraints submit_program(SimFixture& sim, std::uint64_t program) {
  std::mt19937_64 random(program);
  sim.device->create_stream("third");
  sim.device->create_stream("fourth");
  Constraints constraints;
  std::vector<std::pair<Point, std::string>> submitted;
  std::map<StreamId, std::string> last;
  std::vector<std::string> completed;
  for (int i = 0; i < 40; ++i) {
    const auto stream = static_cast<StreamId>(random() % 4);
    const std::string name = std::to_string(i);
    if (!submitted.empty() && random() % 3 == 0) {
      const auto& [point, awaited] = submitted[random() % submitted.size()];
      sim.device->wait(stream, Frontier(point));
      constraints.emplace_back(awaited, name);
    }
    submitted.emplace_back(sim.busy(stream, 1, name), name);
    if (last.contains(stream)) {
      constraints.emplace_back(last[stream], name);
    }
    last[stream] = name;
    for (const std::string& earlier : completed) {
      constraints.emplace_back(earlier, name);
    }
    if (random() % 10 == 0) {
      sim.device->synchronize(Frontier(submitted.back().first));
      completed.push_back(name);
    }
  }
  sim.device->synchronize_all();
  return constraints;
}

std::vector<std::string> executed(SimFixture& sim) {
  std::vector<std::string> names;
  for (const TraceEvent& event : sim.device->take_trace()) {
    if (event.kind == TraceEvent::Kind::kWork) {
      names.push_back(event.name);
    }
  }
  return names;
}

TEST(SimRandomOrder, IsPermitted) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimFixture sim(ordered_by(seed));
    sim.device->set_tracing(true);
    const Constraints constraints = submit_program(sim, seed % 20);
    const std::vector<std::string> order = executed(sim);
    ASSERT_EQ(order.size(), 40U);
    std::map<std::string, std::size_t> position;
    for (std::size_t i = 0; i < order.size(); ++i) {
      position[order[i]] = i;
    }
    ASSERT_EQ(position.size(), 40U);
    for (const auto& [before, after] : constraints) {
      ASSERT_LT(position[before], position[after]) << before << " must be executed before " << after;
    }
  }
}

TEST(SimRandomOrder, SameSeedSameOrder) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SimFixture first(ordered_by(seed));
    SimFixture second(ordered_by(seed));
    first.device->set_tracing(true);
    second.device->set_tracing(true);
    submit_program(first, 1);
    submit_program(second, 1);
    EXPECT_EQ(first.device->order_hash(), second.device->order_hash()) << "seed " << seed;
    EXPECT_EQ(executed(first), executed(second)) << "seed " << seed;
  }
}

TEST(SimRandomOrder, DifferentSeedsGiveDifferentOrdersAndEqualHashesMeanEqualOrders) {
  std::map<std::uint64_t, std::vector<std::string>> orders;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SimFixture sim(ordered_by(seed));
    sim.device->set_tracing(true);
    submit_program(sim, 1);
    const std::vector<std::string> order = executed(sim);
    const auto [it, is_new] = orders.emplace(sim.device->order_hash(), order);
    EXPECT_TRUE(is_new || it->second == order) << "seed " << seed;
  }
  EXPECT_GT(orders.size(), 90U);
}

TEST(SimRandomOrder, ReachesEveryPermittedOrderOfASmallProgram) {
  // Two streams with two pieces each have six interleavings.
  std::set<std::vector<std::string>> orders;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SimFixture sim(ordered_by(seed));
    sim.device->set_tracing(true);
    sim.busy(sim.compute, 1, "a1");
    sim.busy(sim.memory, 1, "b1");
    sim.busy(sim.compute, 1, "a2");
    sim.busy(sim.memory, 1, "b2");
    sim.device->synchronize_all();
    orders.insert(executed(sim));
  }
  EXPECT_EQ(orders.size(), 6U);
}

TEST(SimRandomOrder, AChainOfWaitsLeavesOneOrder) {
  std::set<std::uint64_t> hashes;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SimFixture sim(ordered_by(seed));
    for (int i = 0; i < 10; ++i) {
      const StreamId stream = i % 2 == 0 ? sim.compute : sim.memory;
      sim.device->wait(stream, sim.device->frontier(i % 2 == 0 ? sim.memory : sim.compute));
      sim.busy(stream, 1);
    }
    sim.device->synchronize_all();
    hashes.insert(sim.device->order_hash());
  }
  EXPECT_EQ(hashes.size(), 1U);
}

TEST(SimRandomOrder, FollowsSubmissionCloselyLooselyOrNotAtAll) {
  std::set<std::size_t> executed_before_synchronize;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SimFixture sim(ordered_by(seed));
    sim.device->set_tracing(true);
    for (int i = 0; i < 20; ++i) {
      sim.busy(i % 2 == 0 ? sim.compute : sim.memory, 1);
    }
    executed_before_synchronize.insert(executed(sim).size());
  }
  EXPECT_TRUE(executed_before_synchronize.contains(0));
  EXPECT_TRUE(executed_before_synchronize.contains(20));
  EXPECT_GT(executed_before_synchronize.size(), 5U);
}

TEST(SimRandomOrder, SynchronizeReachesItsFrontier) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SimFixture sim(ordered_by(seed));
    const Point first = sim.busy(sim.compute, 1);
    const Point second = sim.busy(sim.memory, 1);
    sim.device->synchronize(Frontier(first));
    EXPECT_TRUE(sim.device->reached(Frontier(first))) << "seed " << seed;
    sim.device->synchronize_all();
    EXPECT_TRUE(sim.device->reached(Frontier(second))) << "seed " << seed;
  }
}

TEST(SimRandomOrder, CountersAreSampledWhereTheyWereMarked) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SimFixture sim(ordered_by(seed));
    sim.device->set_tracing(true);
    sim.busy(sim.compute, 1, "before");
    sim.device->sample_counter(sim.compute, "counter", 1);
    sim.busy(sim.compute, 1, "after");
    sim.device->sample_counter(sim.compute, "counter", 2);
    sim.device->synchronize_all();
    std::vector<std::string> names;
    for (const TraceEvent& event : sim.device->take_trace()) {
      names.push_back(event.name);
    }
    EXPECT_EQ(names, (std::vector<std::string>{"before", "counter", "after", "counter"})) << "seed " << seed;
  }
}

TEST(SimRandomOrder, WithoutASeedWorkIsExecutedInTheOrderOfSubmission) {
  SimFixture sim(round_options());
  sim.device->set_tracing(true);
  submit_program(sim, 1);
  const std::vector<std::string> order = executed(sim);
  ASSERT_EQ(order.size(), 40U);
  for (std::size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(order[i], std::to_string(i));
  }
}

}  // namespace
}  // namespace vdnn::sim_random_order_test
