// Each kind of defect has its finding, and the corrected program has none.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/streams/sim_fixture.h"

namespace vdnn::sim_checks_test {
namespace {

using Kind = SimFinding::Kind;

SimDeviceOptions checked(bool races, bool versions) {
  SimDeviceOptions options = round_options();
  options.check_races = races;
  options.check_versions = versions;
  return options;
}

// Offloads `x`; then the next layer overwrites its memory. The typical defect is a missing wait.
void offload_and_overwrite(SimFixture& sim, bool wait) {
  const AddressRange x = sim.on_device(0, 256);
  sim.work(sim.compute, "conv1", {}, {{x, 1}});
  sim.device->wait(sim.memory, sim.device->frontier(sim.compute));
  sim.offload(sim.memory, "offload x", {x, 1}, {sim.on_host(0, 256), 1});
  if (wait) {
    sim.device->wait(sim.compute, sim.device->frontier(sim.memory));
  }
  sim.work(sim.compute, "conv2", {}, {{x, 2}});
  sim.device->synchronize_all();
}

TEST(SimRaces, AMissingWaitIsFoundHoweverTheWorkRan) {
  SimFixture sim(checked(true, true));
  offload_and_overwrite(sim, false);
  ASSERT_EQ(sim.device->findings().size(), 1U);
  const SimFinding& finding = sim.device->findings().front();
  EXPECT_EQ(finding.kind, Kind::kRace);
  EXPECT_EQ(finding.first, "offload x");
  EXPECT_EQ(finding.second, "conv2");
  EXPECT_EQ(finding.range, sim.on_device(0, 256));
  EXPECT_EQ(finding.text,
            "'conv2' writes what 'offload x' reads, and nothing orders the two, in bytes "
            "[0x10000000000, 0x10000000100).");
}

TEST(SimRaces, NoneWithTheWait) {
  SimFixture sim(checked(true, true));
  offload_and_overwrite(sim, true);
  EXPECT_TRUE(sim.device->findings().empty());
}

TEST(SimRaces, ReadsDoNotRaceWithReads) {
  SimFixture sim(checked(true, false));
  sim.work(sim.compute, "a", {{sim.on_device(0, 64)}}, {});
  sim.work(sim.memory, "b", {{sim.on_device(0, 64)}}, {});
  EXPECT_TRUE(sim.device->findings().empty());
}

TEST(SimRaces, DisjointBytesDoNotRaceAndOverlappingOnesAreNamed) {
  SimFixture sim(checked(true, false));
  sim.work(sim.compute, "a", {}, {{sim.on_device(0, 64)}});
  sim.work(sim.memory, "b", {}, {{sim.on_device(64, 64)}});
  EXPECT_TRUE(sim.device->findings().empty());
  sim.work(sim.memory, "c", {{sim.on_device(63, 100)}}, {});
  ASSERT_EQ(sim.device->findings().size(), 1U);
  EXPECT_EQ(sim.device->findings()[0].first, "a");
  EXPECT_EQ(sim.device->findings()[0].range, sim.on_device(63, 1));
}

TEST(SimRaces, WorkInPlaceDoesNotRaceWithItself) {
  SimFixture sim(checked(true, false));
  sim.work(sim.compute, "relu", {{sim.on_device(0, 64)}}, {{sim.on_device(0, 64)}, {sim.on_device(32, 64)}});
  EXPECT_TRUE(sim.device->findings().empty());
}

TEST(SimRaces, HostMemoryRacesToo) {
  // The program refills a page-locked buffer while its earlier copy is in flight. In real training such a
  // race is silent, since the loss still falls.
  for (const bool wait : {false, true}) {
    SimFixture sim(checked(true, false));
    const StreamId other = sim.device->create_stream("other");
    sim.prefetch(sim.memory, "prefetch", {sim.on_host(0, 64)}, {sim.on_device(0, 64)});
    if (wait) {
      sim.device->wait(other, sim.device->frontier(sim.memory));
    }
    sim.offload(other, "offload", {sim.on_device(512, 64)}, {sim.on_host(0, 64)});
    ASSERT_EQ(sim.device->findings().size(), wait ? 0U : 1U);
    if (!wait) {
      EXPECT_EQ(sim.device->findings()[0].range, sim.on_host(0, 64));
    }
  }
}

TEST(SimRaces, AWaitForABarePointOrdersWhatThatPointWasOrderedAfter) {
  SimFixture sim(checked(true, false));
  const StreamId third = sim.device->create_stream("third");
  sim.work(sim.compute, "a", {}, {{sim.on_device(0, 64)}});
  sim.device->wait(sim.memory, sim.device->frontier(sim.compute));
  const Point middle = sim.work(sim.memory, "b", {}, {});
  sim.device->wait(third, Frontier(middle));
  sim.work(third, "c", {}, {{sim.on_device(0, 64)}});
  EXPECT_TRUE(sim.device->findings().empty());
}

TEST(SimRaces, WhatTheHostWaitedForIsOrdered) {
  for (const bool synchronize : {false, true}) {
    SimFixture sim(checked(true, false));
    sim.work(sim.compute, "a", {}, {{sim.on_device(0, 64)}});
    sim.device->wait(sim.memory, sim.device->frontier(sim.compute));
    const Point last = sim.work(sim.memory, "b", {}, {});
    if (synchronize) {
      sim.device->synchronize(Frontier(last));  // and so for everything earlier in its frontier
    }
    sim.work(sim.device->create_stream("third"), "c", {{sim.on_device(0, 64)}}, {});
    EXPECT_EQ(sim.device->findings().size(), synchronize ? 0U : 1U);
  }
}

// Regression: work that a query of the host had found done did not count as ordered before the host's later
// work. Only waits counted.
TEST(SimRaces, WhatTheHostHasSeenReachedIsOrdered) {
  SimFixture sim(checked(true, false));
  const Point last = sim.work(sim.compute, "a", {}, {{sim.on_device(0, 64)}});
  const Point other = sim.work(sim.memory, "b", {}, {});
  sim.device->synchronize(Frontier(other));
  const bool reached = sim.device->reached(Frontier(last));
  sim.device->decommit(sim.block);
  EXPECT_EQ(sim.device->findings().size(), reached ? 0U : 1U);
  EXPECT_TRUE(reached) << "both take equally long";
}

TEST(SimRaces, MemoryIsTakenAwayOnlyFromCompletedWork) {
  for (const bool synchronize : {false, true}) {
    SimFixture sim(checked(true, false));
    sim.offload(sim.memory, "offload", {sim.on_device(0, 64)}, {sim.on_host(0, 64)});
    if (synchronize) {
      sim.device->synchronize_all();
    }
    sim.device->decommit(sim.block);
    sim.device->free_pinned(sim.pinned);
    const auto& findings = sim.device->findings();
    ASSERT_EQ(findings.size(), synchronize ? 0U : 2U);
    if (!synchronize) {
      EXPECT_EQ(findings[0].second, "decommit");
      EXPECT_EQ(findings[0].range, sim.on_device(0, 64));
      EXPECT_EQ(findings[1].second, "free_pinned");
      EXPECT_EQ(findings[1].range, sim.on_host(0, 64));
    }
  }
}

TEST(SimRaces, NamesMayDieWithTheirWork) {
  SimFixture sim(checked(true, true));
  {
    const std::string name = "a name that is too long to be stored in place";
    sim.work(sim.compute, name, {}, {{sim.on_device(0, 64), 1}});
    sim.device->synchronize(sim.device->frontier(sim.compute));
    sim.work(sim.compute, name, {}, {{sim.on_device(0, 64), 2}});
  }
  sim.work(sim.memory, "b", {{sim.on_device(0, 64), 1}}, {});
  ASSERT_EQ(sim.device->findings().size(), 2U);
  for (const SimFinding& finding : sim.device->findings()) {
    EXPECT_EQ(finding.first, "a name that is too long to be stored in place");
  }
}

TEST(SimRaces, AreNotLookedForUnlessAsked) {
  SimFixture sim(checked(false, false));
  offload_and_overwrite(sim, false);
  EXPECT_TRUE(sim.device->findings().empty());
}

// Random programs, for a comparison with the definition: two pieces of work are ordered if a path of stream
// order and waits connects them.
struct RandomProgram {
  static constexpr std::uint64_t kUnits = 8;
  static constexpr std::size_t kStreams = 3;

  struct Piece {
    StreamId stream = 0;
    AddressRange range;  // offset within the block
    bool writes = false;
    std::set<std::size_t> after;  // transitively closed
  };

  explicit RandomProgram(std::uint64_t seed)
      : random(seed), waits_in_eight(random() % 9), sim(checked(true, false)) {
    sim.device->create_stream("third");
    for (int i = 0; i < 15; ++i) {
      step();
    }
  }

  void step() {
    const auto stream = static_cast<StreamId>(random() % kStreams);
    for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
      if (random() % 8 < waits_in_eight) {
        sim.device->wait(stream, Frontier(points[piece]));
        follow(stream, piece);
      }
    }
    const std::uint64_t begin = random() % kUnits;
    const Piece piece{.stream = stream,
                      .range = {.begin = begin, .bytes = 1 + random() % (kUnits - begin)},
                      .writes = random() % 2 == 0,
                      .after = known[stream]};
    const std::vector<Access> access{{sim.on_device(piece.range.begin, piece.range.bytes)}};
    points.push_back(sim.work(stream, std::to_string(pieces.size()),
                              piece.writes ? std::vector<Access>{} : access,
                              piece.writes ? access : std::vector<Access>{}));
    pieces.push_back(piece);
    follow(stream, pieces.size() - 1);
  }

  void follow(StreamId stream, std::size_t piece) {
    known[stream].insert(piece);
    known[stream].insert(pieces[piece].after.begin(), pieces[piece].after.end());
  }

  bool conflicting(std::size_t earlier, std::size_t later, std::uint64_t byte) const {
    const Piece& a = pieces[earlier];
    const Piece& b = pieces[later];
    const AddressRange one{.begin = byte, .bytes = 1};
    return a.range.contains(one) && b.range.contains(one) && (a.writes || b.writes) &&
           !b.after.contains(earlier);
  }

  std::mt19937_64 random;
  std::uint64_t waits_in_eight;  // probability, in eighths, that a piece waits for an earlier one
  SimFixture sim;
  std::vector<Piece> pieces;
  std::vector<Point> points;
  std::array<std::set<std::size_t>, kStreams> known;
};

constexpr std::size_t kNone = SIZE_MAX;

// For each byte, the first piece of work that conflicts with an earlier one, by the definition. (`sim` keeps
// only the last write and the reads since, so it may report later conflicts on a byte with another partner.)
std::vector<std::size_t> first_at_fault(const RandomProgram& program) {
  std::vector<std::size_t> first(RandomProgram::kUnits, kNone);
  for (std::size_t later = 0; later < program.pieces.size(); ++later) {
    for (std::size_t earlier = 0; earlier < later; ++earlier) {
      for (std::uint64_t byte = 0; byte < RandomProgram::kUnits; ++byte) {
        if (first[byte] == kNone && program.conflicting(earlier, later, byte)) {
          first[byte] = later;
        }
      }
    }
  }
  return first;
}

std::vector<std::size_t> first_found(const RandomProgram& program) {
  std::vector<std::size_t> first(RandomProgram::kUnits, kNone);
  for (const SimFinding& finding : program.sim.device->findings()) {
    for (std::uint64_t at = finding.range.begin; at < finding.range.end(); ++at) {
      const std::uint64_t byte = at - program.sim.block.begin;
      const std::size_t later = std::stoul(finding.second);
      EXPECT_TRUE(program.conflicting(std::stoul(finding.first), later, byte)) << finding.text;
      first[byte] = std::min(first[byte], later);
    }
  }
  return first;
}

TEST(SimRaces, AgreeWithTheDefinitionOnRandomPrograms) {
  int racy = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const RandomProgram program(seed);
    const std::size_t findings = program.sim.device->findings().size();
    ASSERT_LT(findings, 100U) << "some findings were dropped: make the program shorter";
    racy += findings > 0 ? 1 : 0;
    EXPECT_EQ(first_found(program), first_at_fault(program));
  }
  EXPECT_GT(racy, 100);
  EXPECT_LT(racy, 500);
}

TEST(SimVersions, AMissingWaitReadsSomethingElseInSomeOrder) {
  int stale = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SimDeviceOptions options = checked(false, true);
    options.order_seed = seed;
    SimFixture sim(options);
    offload_and_overwrite(sim, false);
    for (const SimFinding& finding : sim.device->findings()) {
      EXPECT_EQ(finding.kind, Kind::kStaleVersion);
      EXPECT_EQ(finding.first, "conv2");
      EXPECT_EQ(finding.second, "offload x");
      EXPECT_EQ(finding.text,
                "'offload x' expects version 1 and finds version 2 that 'conv2' wrote, in bytes "
                "[0x10000000000, 0x10000000100).");
    }
    stale += sim.device->findings().empty() ? 0 : 1;
  }
  EXPECT_GT(stale, 0);
  EXPECT_LT(stale, 50);
}

TEST(SimVersions, WithTheWaitNoOrderDoes) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SimDeviceOptions options = checked(true, true);
    options.order_seed = seed;
    SimFixture sim(options);
    offload_and_overwrite(sim, true);
    EXPECT_TRUE(sim.device->findings().empty()) << "seed " << seed;
  }
}

TEST(SimVersions, TravelWithCopies) {
  for (const std::uint64_t expected : {7U, 8U}) {
    SimFixture sim(checked(false, true));
    sim.work(sim.memory, "conv1", {}, {{sim.on_device(0, 64), 7}});
    sim.offload(sim.memory, "offload", {sim.on_device(0, 64), 7}, {sim.on_host(0, 64), 7});
    sim.prefetch(sim.memory, "prefetch", {sim.on_host(0, 64), 7}, {sim.on_device(1024, 64), 7});
    sim.work(sim.memory, "conv2", {{sim.on_device(1024, 64), expected}}, {});
    EXPECT_EQ(sim.device->findings().size(), expected == 7 ? 0U : 1U);
  }
}

TEST(SimVersions, EveryByteMustCarryTheVersion) {
  SimFixture sim(checked(false, true));
  sim.work(sim.compute, "a", {}, {{sim.on_device(0, 64), 1}});
  sim.work(sim.compute, "b", {}, {{sim.on_device(20, 4), 2}});
  sim.work(sim.compute, "c", {{sim.on_device(0, 80), 1}}, {});
  ASSERT_EQ(sim.device->findings().size(), 2U);
  EXPECT_EQ(sim.device->findings()[0].first, "b");
  EXPECT_EQ(sim.device->findings()[0].range, sim.on_device(20, 4));
  EXPECT_EQ(sim.device->findings()[1].first, "");
  EXPECT_EQ(sim.device->findings()[1].range, sim.on_device(64, 16));
}

TEST(SimVersions, ScratchSatisfiesOnlyUncheckedReads) {
  SimFixture sim(checked(false, true));
  sim.work(sim.compute, "a", {}, {{sim.on_device(0, 64), 0}});
  sim.work(sim.compute, "unchecked", {{sim.on_device(0, 64), 0}}, {});
  EXPECT_TRUE(sim.device->findings().empty());
  sim.work(sim.compute, "checked", {{sim.on_device(0, 64), 1}}, {});
  ASSERT_EQ(sim.device->findings().size(), 1U);
  EXPECT_EQ(sim.device->findings()[0].first, "a");
}

TEST(SimVersions, WorkReadsBeforeItWrites) {
  SimFixture sim(checked(false, true));
  sim.work(sim.compute, "a", {}, {{sim.on_device(0, 64), 1}});
  sim.work(sim.compute, "in place", {{sim.on_device(0, 64), 1}}, {{sim.on_device(0, 64), 2}});
  EXPECT_TRUE(sim.device->findings().empty());
}

TEST(SimVersions, DoNotSurviveDecommit) {
  SimFixture sim(checked(false, true));
  sim.work(sim.compute, "a", {}, {{sim.on_device(0, 64), 1}});
  sim.device->synchronize_all();
  sim.device->decommit(sim.block);
  sim.device->commit(sim.block);
  sim.work(sim.compute, "b", {{sim.on_device(0, 64), 1}}, {});
  ASSERT_EQ(sim.device->findings().size(), 1U);
  EXPECT_EQ(sim.device->findings()[0].kind, Kind::kStaleVersion);
  EXPECT_EQ(sim.device->findings()[0].first, "");
}

TEST(SimMemoryChecks, DeviceMemoryMustBeCommitted) {
  for (const bool committed : {false, true}) {
    SimFixture sim(checked(true, false));
    const AddressRange second = sim.device->reserve(8192);
    sim.device->commit({.begin = second.begin, .bytes = 4096});
    if (committed) {
      sim.device->commit({.begin = second.begin + 4096, .bytes = 4096});
    }
    sim.work(sim.compute, "conv1", {}, {{{.begin = second.begin + 4000, .bytes = 200}}});
    const auto& findings = sim.device->findings();
    ASSERT_EQ(findings.size(), committed ? 0U : 1U);
    if (!committed) {
      EXPECT_EQ(findings[0].kind, Kind::kNotCommitted);
      EXPECT_EQ(findings[0].second, "conv1");
      EXPECT_EQ(findings[0].range, (AddressRange{.begin = second.begin + 4096, .bytes = 104}));
    }
  }
}

TEST(SimMemoryChecks, TheHostSideOfACopyMustLieInALiveBlock) {
  SimFixture sim(checked(false, true));
  sim.offload(sim.memory, "good", {sim.on_device(0, 64)}, {sim.on_host(0, 64)});
  EXPECT_TRUE(sim.device->findings().empty());
  sim.offload(sim.memory, "to the device", {sim.on_device(0, 64)}, {sim.on_device(64, 64)});
  sim.prefetch(sim.memory, "over the end", {sim.on_host(SimFixture::kBytes - 32, 64)},
               {sim.on_device(0, 64)});
  sim.device->synchronize_all();
  sim.device->free_pinned(sim.pinned);
  sim.prefetch(sim.memory, "after the end", {sim.on_host(0, 64)}, {sim.on_device(0, 64)});
  const auto& findings = sim.device->findings();
  ASSERT_EQ(findings.size(), 3U);
  for (const SimFinding& finding : findings) {
    EXPECT_EQ(finding.kind, Kind::kNotCommitted);
  }
  EXPECT_EQ(findings[0].range, sim.on_device(64, 64));
  EXPECT_EQ(findings[1].range, sim.on_host(SimFixture::kBytes, 32));
  EXPECT_EQ(findings[2].range, sim.on_host(0, 64));
}

TEST(SimMemoryChecks, ProtectedMemoryMayNotBeTouchedUntilItIsMadeAccessible) {
  SimFixture sim(checked(true, false));
  EXPECT_EQ(sim.device->why_not_protect(), "");
  sim.device->protect(sim.compute, sim.on_device(0, 4096), Protection::kInaccessible);
  sim.work(sim.compute, "early", {{sim.on_device(4000, 200)}}, {});
  sim.device->protect(sim.compute, sim.on_device(0, 4096), Protection::kAccessible);
  sim.work(sim.compute, "late", {{sim.on_device(4000, 200)}}, {});
  ASSERT_EQ(sim.device->findings().size(), 1U);
  EXPECT_EQ(sim.device->findings()[0].kind, Kind::kInaccessible);
  EXPECT_EQ(sim.device->findings()[0].second, "early");
  EXPECT_EQ(sim.device->findings()[0].range, sim.on_device(4000, 96));
}

TEST(SimMemoryChecks, ProtectionDoesNotSurviveDecommit) {
  SimFixture sim(checked(true, false));
  sim.device->protect(sim.compute, sim.on_device(0, 4096), Protection::kInaccessible);
  sim.device->synchronize_all();
  sim.device->decommit(sim.block);
  sim.device->commit(sim.block);
  sim.work(sim.compute, "conv1", {}, {{sim.on_device(0, 64)}});
  EXPECT_TRUE(sim.device->findings().empty());
}

TEST(SimMemoryChecks, ProtectionTakesEffectInStreamOrder) {
  // The protection is unordered with the other stream's read. That is a race in every order. In some
  // orders, the read is also an access to inaccessible memory.
  int inaccessible = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SimDeviceOptions options = checked(true, false);
    options.order_seed = seed;
    SimFixture sim(options);
    sim.work(sim.memory, "reader", {{sim.on_device(0, 64)}}, {});
    sim.device->protect(sim.compute, sim.on_device(0, 4096), Protection::kInaccessible);
    sim.device->synchronize_all();
    const auto& findings = sim.device->findings();
    ASSERT_FALSE(findings.empty());
    EXPECT_EQ(findings[0].kind, Kind::kRace);
    EXPECT_EQ(findings[0].first, "reader");
    EXPECT_EQ(findings[0].second, "protect");
    inaccessible += findings.size() == 2 && findings[1].kind == Kind::kInaccessible ? 1 : 0;
  }
  EXPECT_GT(inaccessible, 0);
  EXPECT_LT(inaccessible, 50);
}

TEST(SimFindings, AtMostAHundredAreKept) {
  SimFixture sim(checked(true, false));
  sim.work(sim.compute, "a", {}, {{sim.on_device(0, 4096)}});
  for (std::uint64_t i = 0; i < 200; ++i) {
    sim.work(sim.memory, "b" + std::to_string(i), {{sim.on_device(2 * i, 1)}}, {});
  }
  EXPECT_EQ(sim.device->findings().size(), 100U);
}

TEST(SimFindings, PiecesOfOneRangeAreOneFinding) {
  SimFixture sim(checked(true, false));
  sim.work(sim.compute, "a", {}, {{sim.on_device(0, 64)}});
  sim.work(sim.compute, "b", {{sim.on_device(16, 16)}}, {});  // splits the record of `a`
  sim.work(sim.memory, "c", {{sim.on_device(0, 64)}}, {});
  ASSERT_EQ(sim.device->findings().size(), 1U);
  EXPECT_EQ(sim.device->findings()[0].range, sim.on_device(0, 64));
}

}  // namespace
}  // namespace vdnn::sim_checks_test
