// Defects of order between transfers and computation (docs/known_defects.md). `sim` and the `cuda` driver
// find planted defects; the executor with our pools does not have these defects.

#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/defects/judged_device.h"
#include "tests/defects/misdirected_waits.h"
#include "tests/exec/executor_rig.h"
#include "tests/exec/networks.h"
#include "tests/plan/oracle.h"
#include "vdnn/checker.h"

namespace vdnn::testing::transfers_test {
namespace {

constexpr std::uint64_t kNetworks = 10;
constexpr std::uint64_t kOrders = 20;
constexpr std::uint64_t kSteps = 3;
constexpr Policy kTransferring[] = {Policy::kOffloadAll, Policy::kOffloadConv};

struct Subject {
  std::string name;
  TapePtr tape;
  Schedule schedule;
};

// Networks with forks, joins and pooling that reads feature maps again, under the policies that offload.
std::vector<Subject> transferring_subjects() {
  std::vector<Subject> result;
  for (std::uint64_t seed = 0; seed < kNetworks; ++seed) {
    const TapePtr tape = training_tape(random_network(seed), {.pooling_reads_x_and_y = seed % 2 == 1});
    for (const Policy policy : kTransferring) {
      result.push_back({"network seed " + std::to_string(seed) + " " + to_string(policy), tape,
                        schedule_of(*tape, policy)});
    }
  }
  return result;
}

// Returns the addresses of each step's page-locked blocks, in order of the schedule's buffers.
std::vector<std::vector<std::uint64_t>> run_steps(Device& device, const Subject& subject) {
  std::vector<std::vector<std::uint64_t>> host_blocks;
  ExecutorRig rig(device, *subject.tape);
  Executor executor(rig.parts(*subject.tape, subject.schedule));
  StepLoop loop(rig, executor);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    loop.step();
    host_blocks.emplace_back();
    for (std::size_t id = 0; id < subject.schedule.buffers.size(); ++id) {
      if (subject.schedule.buffers[id].space == Space::kHost) {
        host_blocks.back().push_back(executor.placements()[id].begin);
      }
    }
  }
  return host_blocks;
}

class KnownDefectsOfOrder : public ::testing::TestWithParam<Judge> {};

INSTANTIATE_TEST_SUITE_P(Judges, KnownDefectsOfOrder, ::testing::ValuesIn(kJudges),
                         ::testing::PrintToStringParamName());

// --- 1 -----------------------------------------------------------------------------------------------------

// Megatron-LM#7398: page-locked buffers persist from step to step. The offload of one step overwrote a buffer
// that the previous step's reload still read, and the loss fell all the same. Here each step reuses the
// blocks of the previous step, and in every permitted order a reload reads what the offload of its own step
// has copied.
TEST_P(KnownDefectsOfOrder, ReloadRacesItsOwnEarlierCopyAcrossTheStepBorder) {
  for (const Subject& subject : transferring_subjects()) {
    for (std::uint64_t seed = 0; seed < kOrders; ++seed) {
      SCOPED_TRACE(subject.name + ", order seed " + std::to_string(seed));
      const auto judged = make_judged_device(GetParam(), seed);
      const auto host_blocks = run_steps(judged->device(), subject);
      ASSERT_FALSE(host_blocks[0].empty());
      EXPECT_EQ(host_blocks[1], host_blocks[0]) << "no block is reused, so this test tests nothing";
      ASSERT_TRUE(judged->findings().empty()) << judged->findings().front().text;
    }
  }
}

// Each step offloads the images and reloads them through page-locked memory, which the pool hands out again
// in the next step. Nothing orders the streams except their own waits.
class ReloadingLoop {
 public:
  explicit ReloadingLoop(Device& device)
      : device_(device),
        offload_(device.create_stream("offload")),
        prefetch_(device.create_stream("prefetch")),
        pool_(device, {}),
        pinned_(device),
        images_(pool_.allocate(kBytes, offload_).value()),
        reloaded_(pool_.allocate(kBytes, prefetch_).value()) {}
  ~ReloadingLoop() {
    pool_.free(images_, device_.frontier(offload_));
    pool_.free(reloaded_, device_.frontier(prefetch_));
  }
  ReloadingLoop(const ReloadingLoop&) = delete;
  ReloadingLoop& operator=(const ReloadingLoop&) = delete;

  // Runs a step, and returns its page-locked block.
  AddressRange step() {
    const AddressRange host = pinned_.allocate(kBytes, offload_).value();
    const Point offloaded = device_.copy(offload_, {.name = "offload images",
                                                    .direction = CopyDirection::kDeviceToHost,
                                                    .destination = {.range = host},
                                                    .source = {.range = images_}});
    device_.wait(prefetch_, Frontier(offloaded));
    const Point reloaded = device_.copy(prefetch_, {.name = "prefetch images",
                                                    .direction = CopyDirection::kHostToDevice,
                                                    .destination = {.range = reloaded_},
                                                    .source = {.range = host}});
    pinned_.free(host, Frontier(reloaded));
    return host;
  }

 private:
  static constexpr std::uint64_t kBytes = 4096;
  Device& device_;
  const StreamId offload_;
  const StreamId prefetch_;
  DevicePool pool_;
  PinnedPool pinned_;
  const AddressRange images_;
  const AddressRange reloaded_;
};

// Only the pool waits across the border of two steps. If this wait is lost, the offload of a step races with
// the previous step's prefetch, and the check reports both by name.
TEST_P(KnownDefectsOfOrder, ReloadThatNothingOrdersAcrossTheStepBorderIsFound) {
  for (const bool lost : {false, true}) {
    const auto judged = make_judged_device(GetParam(), 0);
    MisdirectedWaits device(judged->device(), [&](StreamId stream, Point) {
      return lost && judged->device().stream_name(stream) == "offload";
    });
    {
      ReloadingLoop loop(device);
      const AddressRange first = loop.step();
      ASSERT_EQ(loop.step(), first) << "the block is not reused";
    }
    EXPECT_EQ(device.astray(), lost ? 1U : 0U);
    const std::vector<SimFinding> findings = judged->findings();
    ASSERT_EQ(findings.size(), lost ? 1U : 0U);
    if (lost) {
      EXPECT_EQ(findings[0].kind, SimFinding::Kind::kRace);
      EXPECT_EQ(findings[0].first, "prefetch images");
      EXPECT_EQ(findings[0].second, "offload images");
    }
  }
}

// Page-locked buffers as in Megatron-LM: one persistent buffer per feature map, instead of blocks that each
// step allocates and releases.
Schedule with_lasting_host_buffers(const Schedule& schedule) {
  const auto is_host = [&](const Instruction& instruction) {
    return instruction.buffer != kNone && schedule.buffers[instruction.buffer].space == Space::kHost &&
           (instruction.kind == InstructionKind::kAllocate || instruction.kind == InstructionKind::kRelease);
  };
  Schedule result = schedule;
  result.instructions.clear();
  std::map<std::uint32_t, std::uint32_t> moved_to;
  for (std::uint32_t index = 0; index < schedule.instructions.size(); ++index) {
    if (!is_host(schedule.instructions[index])) {
      moved_to[index] = static_cast<std::uint32_t>(result.instructions.size());
      result.instructions.push_back(schedule.instructions[index]);
    }
  }
  for (Instruction& instruction : result.instructions) {
    for (Wait& wait : instruction.waits) {
      wait.instruction = moved_to.at(wait.instruction);
    }
  }
  for (Buffer& buffer : result.buffers) {
    buffer.persistent = buffer.persistent || buffer.space == Space::kHost;
  }
  return result;
}

// Makes each offload wait for the previous step's reload from the same page-locked buffer.
void order_across_the_border(Schedule& schedule) {
  std::map<BufferId, std::uint32_t> prefetches;
  for (std::uint32_t index = 0; index < schedule.instructions.size(); ++index) {
    if (schedule.instructions[index].kind == InstructionKind::kPrefetch) {
      prefetches[schedule.instructions[index].host_buffer] = index;
    }
  }
  for (Instruction& instruction : schedule.instructions) {
    if (instruction.kind == InstructionKind::kOffload) {
      instruction.waits.push_back({.instruction = prefetches.at(instruction.host_buffer), .steps_ago = 1});
    }
  }
}

// The ops in between order most readers and writers of such a buffer, but not the copy of the images on the
// load stream. The checker reports the missing order. The oracle shares no code with the checker, and finds
// an order in which an op reads other contents.
TEST(KnownDefects, LastingPageLockedBuffersNeedAWaitForTheStepBefore) {
  const auto objection = [](const Subject& subject) {
    return Oracle(*subject.tape, subject.schedule).objection(subject.schedule, Exploration::kConflicts);
  };
  for (Subject& subject : transferring_subjects()) {
    SCOPED_TRACE(subject.name);
    subject.schedule = with_lasting_host_buffers(subject.schedule);
    EXPECT_FALSE(check_schedule(*subject.tape, subject.schedule).empty());
    EXPECT_NE(objection(subject), "");

    order_across_the_border(subject.schedule);
    EXPECT_TRUE(check_schedule(*subject.tape, subject.schedule).empty());
    EXPECT_EQ(objection(subject), "");
  }
}

// --- 2 -----------------------------------------------------------------------------------------------------

// torchtitan#2581: a wait was issued on the "current" stream instead of the stream that needed it. In our
// interface, the stream is an argument. The checks would find a driver that confused streams, whichever
// stream lost its waits.
TEST_P(KnownDefectsOfOrder, WaitOnTheWrongStreamIsFound) {
  for (const Subject& subject : transferring_subjects()) {
    // In training on a single device, there is no reduce stream.
    for (std::size_t role = 0; role < static_cast<std::size_t>(StreamRole::kReduce); ++role) {
      const std::string name = to_string(static_cast<StreamRole>(role));
      SCOPED_TRACE(subject.name + ", waits of " + name);
      const auto judged = make_judged_device(GetParam(), 0);
      MisdirectedWaits device(judged->device(), [&](StreamId stream, Point) {
        return judged->device().stream_name(stream) == name;
      });
      run_steps(device, subject);
      EXPECT_GT(device.astray(), 0U);
      EXPECT_FALSE(judged->findings().empty());
    }
  }
}

// --- 3 -----------------------------------------------------------------------------------------------------

// A release waits for the buffer's last users on all streams. If any one of these waits is left out, the
// schedule frees a block that another stream may still read.
TEST(KnownDefects, ReleaseThatForgetsALastReaderIsFound) {
  std::size_t dropped = 0;
  for (const Subject& subject : transferring_subjects()) {
    ASSERT_TRUE(check_schedule(*subject.tape, subject.schedule).empty()) << subject.name;
    for (std::uint32_t index = 0; index < subject.schedule.instructions.size(); ++index) {
      const Instruction& release = subject.schedule.instructions[index];
      if (release.kind != InstructionKind::kRelease) {
        continue;
      }
      for (std::size_t wait = 0; wait < release.waits.size(); ++wait) {
        Schedule broken = subject.schedule;
        auto& waits = broken.instructions[index].waits;
        waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(wait));
        EXPECT_FALSE(check_schedule(*subject.tape, broken).empty())
            << subject.name << ": release " << index << " without wait " << wait;
        ++dropped;
      }
    }
  }
  std::cout << dropped << " waits of releases dropped one at a time\n";
  EXPECT_GT(dropped, 100U);
}

}  // namespace
}  // namespace vdnn::testing::transfers_test
