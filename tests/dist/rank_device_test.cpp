#include "src/dist/rank_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/fake_gpus.h"
#include "tests/fakes/thread_ranks.h"

namespace vdnn {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kRanks = 4;

// The GPUs that a rank sees on its machine.
struct Seen {
  int gpus = 0;
  int first_card = 0;
};

struct Chosen {
  std::vector<std::string> devices = std::vector<std::string>(kRanks);
  std::vector<std::string> errors;
};

// Runs the choice of devices on the ranks of one machine, where rank r sees seen[r].
Chosen choose(const std::string& asked, const std::vector<Seen>& seen) {
  Chosen chosen;
  chosen.errors = testing::outcomes_of_ranks(kRanks, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    const auto gpus = testing::make_fake_gpus(std::make_shared<FakeCuda>(
        FakeCudaOptions{.gpus = seen[rank].gpus, .first_card = seen[rank].first_card}));
    chosen.devices[rank] = device_of_rank(asked, group, gpus.get());
  });
  return chosen;
}

// The first rank to find the error reports it; other ranks may learn only that this rank has ended.
auto refused(const std::string& text) {
  return AllOf(Contains(HasSubstr(text)), Each(Not("")));
}

class DeviceOfRank : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Asked, DeviceOfRank, ::testing::Values("auto", "cuda"),
                         [](const auto& test) { return test.param; });

TEST_P(DeviceOfRank, IsTheGpuOfItsNumberWhereAllAreSeen) {
  const Chosen chosen = choose(GetParam(), std::vector<Seen>(kRanks, {.gpus = 5}));
  EXPECT_THAT(chosen.errors, Each(""));
  EXPECT_THAT(chosen.devices, ElementsAre("cuda:0", "cuda:1", "cuda:2", "cuda:3"));
}

// Regression: ranks that each see one GPU, as under srun --gpus-per-task=1, were refused: "a machine has 4
// ranks and 1 GPUs".
TEST_P(DeviceOfRank, IsTheOnlyOneThatItSees) {
  const Chosen chosen = choose(GetParam(), {{1, 2}, {1, 0}, {1, 3}, {1, 1}});
  EXPECT_THAT(chosen.errors, Each(""));
  EXPECT_THAT(chosen.devices, Each("cuda:0"));
}

TEST_P(DeviceOfRank, IsNobodyElses) {
  EXPECT_THAT(choose(GetParam(), {{1, 2}, {1, 0}, {1, 3}, {1, 0}}).errors,
              refused("ranks 1 and 3 have the same GPU, GPU-fa000000-0000-0000-0000-000000000000"));
}

// One rank sees all GPUs, and would choose the GPU of another rank.
TEST_P(DeviceOfRank, IsNobodyElsesWhateverTheirNumbers) {
  EXPECT_THAT(choose(GetParam(), {{1, 0}, {4, 0}, {1, 1}, {1, 3}}).errors,
              refused("ranks 1 and 2 have the same GPU, GPU-fa010000-"));
}

TEST_P(DeviceOfRank, IsRefusedWhereThereAreFewerThanRanks) {
  EXPECT_THAT(choose(GetParam(), std::vector<Seen>(kRanks, {.gpus = 3})).errors,
              refused("a machine has 4 ranks and 3 GPUs: each rank needs its own"));
}

TEST(DeviceOfRankWithoutGpus, IsCpuUnlessAGpuIsAskedFor) {
  const std::vector<Seen> none(kRanks);
  EXPECT_THAT(choose("auto", none).devices, Each("cpu"));
  EXPECT_THAT(choose("cpu", none).devices, Each("cpu"));
  EXPECT_THAT(choose("cuda", none).errors, refused("4 ranks and 0 GPUs"));
  testing::run_ranks(kRanks,
                     [](ProcessGroup& group) { EXPECT_EQ(device_of_rank("auto", group, nullptr), "cpu"); });
}

// Ranks without a GPU take part in the comparison of devices, too, so that the other ranks do not wait for
// them forever.
TEST(DeviceOfRankWithoutGpus, AlsoWhereOthersHaveSome) {
  const Chosen chosen = choose("auto", {{1, 0}, {0, 0}, {1, 2}, {0, 0}});
  EXPECT_THAT(chosen.errors, Each(""));
  EXPECT_THAT(chosen.devices, ElementsAre("cuda:0", "cpu", "cuda:0", "cpu"));
}

TEST(DeviceOfRankAlone, IsTheOneAskedFor) {
  const auto gpus = testing::make_fake_gpus(std::make_shared<FakeCuda>());
  testing::run_ranks(1, [&](ProcessGroup& group) {
    EXPECT_EQ(device_of_rank("cuda", group, gpus.get()), "cuda:0");
    EXPECT_EQ(device_of_rank("cuda:1", group, gpus.get()), "cuda:1");
    EXPECT_EQ(device_of_rank("auto", group, gpus.get()), "cuda:0");
    EXPECT_EQ(device_of_rank("auto", group, nullptr), "cpu");
  });
}

TEST(DeviceOfRankByNumber, IsRefusedForSeveral) {
  EXPECT_THAT(choose("cuda:0", std::vector<Seen>(kRanks, {.gpus = 4})).errors,
              refused("device = cuda:0: a machine's 4 ranks cannot share it"));
}

}  // namespace
}  // namespace vdnn
