#include "vdnn/process_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

#include "src/dist/launcher.h"
#include "src/dist/process_group.h"
#include "tests/fakes/fake_network.h"
#include "vdnn/cpu_device.h"
#include "vdnn/error.h"
#include "vdnn/sim_device.h"

namespace vdnn::process_group_test {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

const std::string kNothing;

std::vector<std::string> run(FakeNetwork& network, const std::function<void(ProcessGroup&)>& work) {
  return network.run([&](int rank) {
    const auto group =
        make_process_group(network.transport(rank), {.start_seconds = 120, .wait_seconds = 60});
    work(*group);
  });
}

class ProcessGroupOf : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Ranks, ProcessGroupOf, ::testing::Values(1, 2, 3, 4),
                         ::testing::PrintToStringParamName());

TEST_P(ProcessGroupOf, GathersTextsOfAnyLengthInRankOrder) {
  FakeNetwork network({.seed = 1, .ranks = GetParam()});
  EXPECT_THAT(run(network,
                  [&](ProcessGroup& group) {
                    for (const std::size_t length : {0U, 1U, 1000U}) {
                      const auto texts =
                          group.gather_to_all(std::string(length * static_cast<std::size_t>(group.rank()),
                                                          static_cast<char>('a' + group.rank())));
                      ASSERT_EQ(texts.size(), static_cast<std::size_t>(GetParam()));
                      for (std::size_t rank = 0; rank < texts.size(); ++rank) {
                        EXPECT_EQ(texts[rank], std::string(length * rank, static_cast<char>('a' + rank)));
                      }
                    }
                  }),
              Each(kNothing));
}

// If all ranks fail in the same way, rank 0 must report the failure and end the other ranks before they
// report it.
TEST(ProcessGroup, ARankThatGivesUpLetsLowerRanksReportFirst) {
  constexpr int kRanks = 8;
  FakeNetwork network({.seed = 3, .ranks = kRanks});
  std::vector<double> head_starts(kRanks);
  run(network, [&](ProcessGroup& group) {
    const double before = network.rested_seconds(group.rank());
    EXPECT_THROW(group.end_ranks("there is no such file", 2), DeviceError);  // the fake throws instead
    head_starts[static_cast<std::size_t>(group.rank())] = network.rested_seconds(group.rank()) - before;
  });
  // Each head start is a difference of sums of seconds, and so has a rounding error.
  EXPECT_THAT(head_starts, Pointwise(DoubleNear(1e-6), {0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 2.5, 2.5}));
}

TEST_P(ProcessGroupOf, BroadcastsFromEveryRankWhateverTheSize) {
  FakeNetwork network({.seed = 2, .ranks = GetParam()});
  EXPECT_THAT(
      run(network,
          [&](ProcessGroup& group) {
            for (int root = 0; root < GetParam(); ++root) {
              for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{3} << 20U}) {
                std::vector<std::byte> values(bytes, std::byte(group.rank() + 1));
                group.broadcast(values, root);
                EXPECT_EQ(std::ranges::count(values, std::byte(root + 1)), std::ssize(values));
              }
            }
            EXPECT_THROW(group.broadcast({}, GetParam()), InvalidArgument);
            EXPECT_THROW(group.broadcast({}, -1), InvalidArgument);
          }),
      Each(kNothing));
}

TEST_P(ProcessGroupOf, NobodyPassesABarrierBeforeAllHaveCome) {
  FakeNetwork network({.seed = 3, .ranks = GetParam()});
  std::atomic<int> came = 0;
  EXPECT_THAT(run(network,
                  [&](ProcessGroup& group) {
                    for (int round = 1; round <= 10; ++round) {
                      ++came;
                      group.barrier();
                      EXPECT_GE(came, round * GetParam());
                    }
                  }),
              Each(kNothing));
  for (int rank = 0; rank < GetParam(); ++rank) {
    EXPECT_TRUE(network.left(rank));
  }
}

TEST(ProcessGroup, ARankThatHangsIsNamedWithWhatItWasAwaitedFor) {
  FakeNetwork network({.seed = 4, .ranks = 3});
  std::atomic<int> ended = 0;
  const auto said = run(network, [&](ProcessGroup& group) {
    if (group.rank() == 1) {
      network.until_they_wait({0, 2});
      network.let_pass(60);
      while (ended < 2) {
        network.transport(1)->rest(0);
      }
      throw DataError("late");
    }
    try {
      group.barrier("the checkpoint");
    } catch (const DeviceError&) {
      ++ended;
      throw;
    }
  });
  EXPECT_EQ(said[0], "rank 0 of 3 on host0: the checkpoint: heard nothing from rank 1 (on host1) for 60 s");
  EXPECT_EQ(said[2], "rank 2 of 3 on host2: the checkpoint: heard nothing from rank 1 (on host1) for 60 s");
  EXPECT_FALSE(network.left(0));
}

// A rank must hear of the failure of a step in flight before the gather ends.
TEST(ProcessGroup, AGatherEndsWithWhatItsCheckThrows) {
  FakeNetwork network({.seed = 6, .ranks = 2});
  std::atomic<bool> ended = false;
  const auto said = run(network, [&](ProcessGroup& group) {
    if (group.rank() == 1) {
      while (!ended) {
        network.transport(1)->rest(0);
      }
      throw DataError("late");
    }
    try {
      group.gather_to_all("", "requests", [] { throw DeviceError("a sum has failed"); });
    } catch (const DeviceError&) {
      ended = true;
      throw;
    }
  });
  EXPECT_EQ(said[0], "a sum has failed");
  EXPECT_FALSE(network.left(0));
}

TEST(ProcessGroup, RanksThatNeverComeAreNamed) {
  FakeNetwork network({.seed = 5, .ranks = 3});
  const auto said = network.run([&](int rank) {
    if (rank == 0) {
      make_process_group(network.transport(0), {.start_seconds = 120});
    } else if (rank == 1) {
      network.until_they_wait({0});
      network.let_pass(120);
    }
  });
  EXPECT_EQ(said[0], "rank 0 of 3 on host0: start: heard nothing from ranks 1, 2 for 120 s");
}

TEST(ProcessGroup, IsAWorldOfOneWithoutALauncher) {
  if (launched_by_mpi()) {
    GTEST_SKIP() << "this test was itself started by a launcher of MPI programs";
  }
  const auto group = ProcessGroup::join();
  EXPECT_EQ(group->rank(), 0);
  EXPECT_EQ(group->size(), 1);
  EXPECT_EQ(group->local_rank(), 0);
  EXPECT_EQ(group->local_size(), 1);
  EXPECT_FALSE(group->host().empty());
  EXPECT_THAT(group->gather_to_all("alone"), ElementsAre("alone"));
  group->barrier();
  const auto device = make_cpu_device({.budget_bytes = 1 << 20, .host_budget_bytes = 1 << 20});
  const AddressRange memory = device->reserve(1 << 16);
  device->commit(memory);
  *pointer_to<float>(memory.begin) = 3;
  const auto communicator = group->communicator(*device);
  const StreamId stream = device->create_stream("communication");
  communicator->wait(Frontier(
      communicator->all_reduce(stream, {.name = "sum", .range = {.begin = memory.begin, .bytes = 4}})));
  EXPECT_EQ(*pointer_to<float>(memory.begin), 3);
}

TEST(ProcessGroup, RefusesWhatCannotBeAndNamesIt) {
  const auto refusal = [](const ProcessGroupOptions& options) -> std::string {
    try {
      ProcessGroup::join(options);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return kNothing;
  };
  EXPECT_THAT(refusal({.start_seconds = 0}), HasSubstr("start_seconds is 0 s"));
  EXPECT_THAT(refusal({.wait_seconds = -1}), HasSubstr("wait_seconds is -1 s"));

  FakeNetwork network({.ranks = 1});
  EXPECT_THAT(run(network,
                  [](ProcessGroup& group) {
                    group.communicator(*make_sim_device({.profile = sim_profile("titan-x")}));
                  }),
              Each(HasSubstr("the device is sim:titan-x")));
}

// --- launchers ---------------------------------------------------------------------------------------------

std::optional<Launcher> launcher_of(const std::map<std::string, std::string>& variables) {
  return find_launcher([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(Launcher, IsKnownByItsVariables) {
  EXPECT_FALSE(launcher_of({}));
  EXPECT_EQ(launcher_of({{"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_RANK", "1"}})->ranks, 4);
  EXPECT_EQ(launcher_of({{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}})->ranks, 2);
  EXPECT_EQ(launcher_of({{"PMI_SIZE", "2"}, {"SLURM_STEP_NUM_TASKS", "2"}})->name, "srun (PMI)");
  EXPECT_EQ(launcher_of({{"PMIX_RANK", "0"}})->ranks, std::nullopt);
  EXPECT_EQ(launcher_of({{"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "3"}})->ranks, 3);
  // A batch script, and a single task under srun, are no launchers.
  EXPECT_FALSE(launcher_of({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}));
  EXPECT_FALSE(launcher_of({{"SLURM_NTASKS", "1"}, {"SLURM_STEP_NUM_TASKS", "1"}}));
}

TEST(Launcher, ThatStartsProcessesWhichCannotFindEachOtherIsRefused) {
  const auto refusal = [](const std::map<std::string, std::string>& variables) -> std::string {
    try {
      launcher_of(variables);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return kNothing;
  };
  EXPECT_THAT(refusal({{"SLURM_STEP_NUM_TASKS", "4"}}),
              AllOf(HasSubstr("srun has started 4 processes"), HasSubstr("--mpi=pmix")));
  EXPECT_THAT(refusal({{"OMPI_COMM_WORLD_SIZE", "many"}}), HasSubstr("OMPI_COMM_WORLD_SIZE is 'many'"));
  EXPECT_THAT(refusal({{"PMI_SIZE", "0"}}), HasSubstr("PMI_SIZE is '0'"));
}

}  // namespace
}  // namespace vdnn::process_group_test
