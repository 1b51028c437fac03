// Runs the real executor and the real pools on a simulated device that executes work in random permitted
// orders. Nothing races, and no read finds stale contents. If a wait is dropped from a schedule, the checks
// find it, even the check of versions alone, which does not rely on frontiers.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/exec/held_back_device.h"
#include "tests/exec/networks.h"
#include "tests/exec/permitted_orders.h"
#include "tests/exec/plan_cases.h"
#include "tests/extent.h"
#include "vdnn/sim_device.h"

namespace vdnn::testing {
namespace {

// Seeds for each plan.
const std::uint64_t kSeeds = extent({.usual = 50, .under_sanitizers = 50, .in_long_run = 1000});
const std::uint64_t kBrokenSeeds = std::max<std::uint64_t>(kSeeds / 10, 10);
// Of all waits of a schedule, every n-th is dropped, one at a time.
const std::uint64_t kWaitsPerDrop = extent({.usual = 2, .under_sanitizers = 12, .in_long_run = 1});

// All memory must be given back, to the pools and then to the system.
void run_and_release(Device& device, const Tape& tape, const Schedule& schedule) {
  EXPECT_EQ(run_steps(device, tape, schedule), 0U);
  expect_nothing_held(device);
}

class OrderTest : public ::testing::TestWithParam<std::tuple<std::string, PlanCase>> {
 protected:
  OrderTest()
      : model_(std::get<0>(GetParam())),
        plan_(std::get<1>(GetParam())),
        tape_(training_tape(zoo_network(model_, 4))),
        schedule_(schedule_of(*tape_, plan_)) {}

  std::string label() const { return model_ + " " + plan_.name; }

  const std::string model_;
  const PlanCase plan_;
  const TapePtr tape_;
  const Schedule schedule_;
};

TEST_P(OrderTest, NoOrderRacesOrReadsAStaleVersion) {
  std::set<std::uint64_t> orders;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto device = make_random_order_device(seed, Check::kBoth);
    run_and_release(*device, *tape_, schedule_);
    ASSERT_TRUE(device->findings().empty())
        << label() << ", order seed " << seed << ": " << device->findings().front().text;
    orders.insert(device->order_hash());
  }
  std::cout << label() << ": " << kSeeds << " seeds, " << orders.size() << " distinct orders\n";
  // Without transfers, only loads and the reading of metrics run beside the compute stream. Only a few
  // hundred orders are then likely, so several seeds draw the same order.
  EXPECT_GT(orders.size(), plan_.offloads() ? kSeeds / 2 : kSeeds / 5);
}

// A schedule without one of its waits.
struct DroppedWait {
  Schedule schedule;
  std::string text;
  std::string awaited;  // name of the work that was waited for
};

// The name that the executor gives to the instruction's work.
std::string work_name(const Tape& tape, const Instruction& instruction) {
  return instruction.kind == InstructionKind::kLaunch ? tape.op(instruction.op).name
                                                      : describe(tape, instruction);
}

std::vector<DroppedWait> drop_waits(const Tape& tape, const Schedule& schedule) {
  std::vector<DroppedWait> result;
  std::uint64_t waits_seen = 0;
  for (std::size_t index = 0; index < schedule.instructions.size(); ++index) {
    const Instruction& instruction = schedule.instructions[index];
    for (std::size_t wait = 0; wait < instruction.waits.size(); ++wait) {
      if (waits_seen++ % kWaitsPerDrop != 0) {
        continue;
      }
      Schedule broken = schedule;
      auto& waits = broken.instructions[index].waits;
      waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(wait));
      const Wait& gone = instruction.waits[wait];
      const std::string awaited = work_name(tape, schedule.instructions[gone.instruction]);
      result.push_back({.schedule = std::move(broken),
                        .text = std::to_string(index) + " (" + describe(tape, instruction) +
                                ") does not wait for '" + awaited + "'" +
                                (gone.steps_ago > 0 ? " of the previous step" : ""),
                        .awaited = awaited});
    }
  }
  return result;
}

// Vector clocks find a race in any order, so one run suffices.
bool is_found_by_races(const Tape& tape, const DroppedWait& dropped) {
  const auto device = make_random_order_device(0, Check::kRaces);
  run_and_release(*device, tape, dropped.schedule);
  return !device->findings().empty();
}

// Versions reveal the dropped wait if the work that it waited for is late.
bool is_found_by_versions(const Tape& tape, const DroppedWait& dropped) {
  for (std::uint64_t seed = 0; seed < kBrokenSeeds; ++seed) {
    const auto device = make_random_order_device(seed, Check::kVersions);
    HeldBackDevice held_back(*device, dropped.awaited, 4 * dropped.schedule.instructions.size());
    run_and_release(held_back, tape, dropped.schedule);
    if (!device->findings().empty()) {
      return true;
    }
  }
  return false;
}

// The two checks share no code. Unless values of the plan have several lives, either both checks or neither
// must find each dropped wait. Neither check finds it if the wait changes nothing at run time. For example,
// most releases wait for the compute stream, and the next owner of their memory is the compute stream. (The
// static checker still reports such a schedule, which must not rely on the next owner of memory.) If values
// have several lives, versions do not show some races: a value that is fetched to its earlier address has the
// right version there before the copy.
TEST_P(OrderTest, DroppedWaitsAreFoundByVersionsAlone) {
  const std::vector<DroppedWait> all = drop_waits(*tape_, schedule_);
  std::size_t found = 0;
  for (const DroppedWait& dropped : all) {
    const bool races = is_found_by_races(*tape_, dropped);
    const bool versions = is_found_by_versions(*tape_, dropped);
    EXPECT_TRUE(versions == races || (races && plan_.lives)) << label() << ": " << dropped.text;
    found += versions ? 1 : 0;
  }
  std::cout << label() << ": " << all.size() << " waits dropped one at a time, " << found
            << " found by races and by versions alone\n";
  EXPECT_GT(found, 0U);
}

INSTANTIATE_TEST_SUITE_P(All, OrderTest,
                         ::testing::Combine(::testing::Values("lenet", "fashion-vgg"),
                                            ::testing::ValuesIn(plan_cases())),
                         [](const auto& test) {
                           std::string name = std::get<0>(test.param) + "_" + std::get<1>(test.param).name;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace vdnn::testing
