#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/plan/peers/peers.h"
#include "src/plan/peers/rotor.h"
#include "src/plan/readers.h"
#include "tests/plan/oracle.h"
#include "tests/plan/tapes.h"
#include "vdnn/checker.h"
#include "vdnn/classic_catalog.h"

namespace vdnn::peer_schedules_test {
namespace {

using peers::Block;
using peers::Rotor;
using peers::Saving;
using peers::Stage;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

testing::TapePtr tape_of(const std::string& model) {
  return lower_to_tape(make_model({.model = model, .input = {}, .classes = 0, .batch = 2}),
                       *make_classic_catalog(), testing::kMomentum);
}

// --- blocks ------------------------------------------------------------------------------------------------

// The last op of each block.
std::vector<std::string> ends_of(const Tape& tape, const std::vector<Block>& blocks) {
  std::vector<std::string> names;
  std::ranges::transform(blocks, std::back_inserter(names),
                         [&](const Block& block) { return tape.op(block.end - 1).name; });
  return names;
}

TEST(PeerBlocks, AreTheResidualBlocksOfAResNet) {
  const auto tape = tape_of("resnet18");
  const std::vector<std::string> ends = ends_of(*tape, peers::find_blocks(*tape));
  ASSERT_EQ(ends.size(), 10U) << "expected: the stem, eight residual blocks, the head";
  EXPECT_EQ(ends[0], "pool1.forward");
  EXPECT_EQ(ends[1], "block1_1_relu.forward");
  EXPECT_EQ(ends[8], "block4_2_relu.forward");
  EXPECT_EQ(ends[9], tape->op(tape->forward_ops() - 1).name);
}

TEST(PeerBlocks, AreTheLevelsOfAUNet) {
  const auto tape = tape_of("unet");
  EXPECT_THAT(ends_of(*tape, peers::find_blocks(*tape)),
              ElementsAre("enc1_relu2.forward", "enc2_relu2.forward", "dec2_concat.forward",
                          "dec1_concat.forward", tape->op(tape->forward_ops() - 1).name));
}

TEST(PeerBlocks, OfAChainBeginWithALayerWithWeights) {
  const auto tape = tape_of("vgg16");
  const std::vector<Block> blocks = peers::find_blocks(*tape);
  EXPECT_EQ(blocks.size(), 16U);
  for (const Block& block : blocks) {
    EXPECT_THAT(tape->op(block.begin).name, ::testing::ContainsRegex("^(conv|fc)"));
  }
}

TEST(PeerBlocks, AreTheWholeForwardPass) {
  for (const std::string& model : model_names()) {
    SCOPED_TRACE(model);
    const auto tape = tape_of(model);
    const std::vector<Block> blocks = peers::find_blocks(*tape);
    OpId next = 0;
    for (const Block& block : blocks) {
      EXPECT_EQ(block.begin, next);
      EXPECT_GT(block.end, block.begin);
      next = block.end;
    }
    EXPECT_EQ(next, tape->forward_ops());
    EXPECT_GT(blocks.size(), 1U);
  }
}

TEST(PeerBlocks, AreJoinedEvenly) {
  std::vector<Block> blocks;
  for (OpId op = 0; op < 10; ++op) {
    blocks.push_back({.begin = op, .end = op + 1});
  }
  EXPECT_THAT(
      peers::join_blocks(blocks, 3),
      ElementsAre(Block{.begin = 0, .end = 3}, Block{.begin = 3, .end = 6}, Block{.begin = 6, .end = 10}));
  EXPECT_EQ(peers::join_blocks(blocks, 20), blocks);
  EXPECT_THAT(peers::join_blocks(blocks, 1), ElementsAre(Block{.begin = 0, .end = 10}));
}

// --- schedules ---------------------------------------------------------------------------------------------

PlanCosts equal_costs(const Tape& tape) {
  PlanCosts costs;
  for (const Op& op : tape.ops()) {
    costs.op_seconds.emplace_back(op.algorithms.size(), 1e-3);
  }
  return costs;
}

std::vector<std::string> findings(const Tape& tape, const Schedule& schedule) {
  std::vector<std::string> all = check_schedule(tape, schedule);
  if (const std::string objection =
          testing::Oracle(tape, schedule).objection(schedule, testing::Exploration::kConflicts);
      !objection.empty()) {
    all.push_back(objection);
  }
  return all;
}

class PeerSchedules : public ::testing::TestWithParam<std::string> {
 protected:
  testing::TapePtr tape_ = tape_of(GetParam());
};

TEST_P(PeerSchedules, AreRight) {
  for (const Peer peer : all_peers()) {
    if (peer != Peer::kRotor) {
      EXPECT_THAT(findings(*tape_, make_peer_schedule(*tape_, peer, {}).schedule), IsEmpty())
          << to_string(peer);
    }
  }
}

TEST_P(PeerSchedules, OfRotorAreRightInEveryLimit) {
  const RotorSchedules rotor(*tape_, {}, equal_costs(*tape_));
  std::size_t recomputed = 0;
  std::size_t found = 0;
  for (std::size_t limit = 0; limit <= RotorSchedules::kLimits; limit += 20) {
    const auto planned = rotor.within(limit);
    EXPECT_TRUE(planned || found == 0) << "no plan, although less memory sufficed";
    if (planned) {
      ++found;
      EXPECT_THAT(findings(*tape_, planned->schedule), IsEmpty()) << limit;
      recomputed = std::max(recomputed, recomputed_ops(planned->schedule));
    }
  }
  EXPECT_GT(recomputed, 0U);
  EXPECT_EQ(recomputed_ops(rotor.within(RotorSchedules::kLimits)->schedule), 0U);
}

// In all blocks but the last, each op that makes something for the backward pass runs exactly twice.
TEST_P(PeerSchedules, OfCheckpointsRunNoOpMoreThanTwice) {
  for (const Peer peer : {Peer::kCheckpointBlocks, Peer::kCheckpointSqrt, Peer::kOffloadInputs}) {
    const Schedule schedule = make_peer_schedule(*tape_, peer, {}).schedule;
    std::map<OpId, int> again;
    for (const Instruction& instruction : schedule.instructions) {
      again[instruction.op] += instruction.kind == InstructionKind::kRecompute ? 1 : 0;
    }
    EXPECT_GT(recomputed_ops(schedule), 0U);
    for (const auto& [op, times] : again) {
      EXPECT_LE(times, 1) << tape_->op(op).name << " under " << to_string(peer);
    }
  }
}

TEST_P(PeerSchedules, OfSaveOnCpuMoveAllThatBackwardReadsOnTheComputeStream) {
  const Schedule schedule = make_peer_schedule(*tape_, Peer::kSaveOnCpu, {}).schedule;
  std::uint64_t saved = 0;
  for (ValueId value = 0; value < tape_->values().size(); ++value) {
    const bool made = tape_->producer(value) != kNone && tape_->producer(value) < tape_->forward_ops();
    const bool image = tape_->value(value).kind == ValueKind::kInput;
    if ((made || image) && !tape_->value(value).persistent() &&
        first_backward_reader(*tape_, value) != kNone) {
      saved += tape_->value(value).bytes;
    }
  }
  EXPECT_EQ(offload_bytes(*tape_, schedule), saved);
  for (const Instruction& instruction : schedule.instructions) {
    if (instruction.kind == InstructionKind::kOffload || instruction.kind == InstructionKind::kPrefetch) {
      EXPECT_EQ(instruction.stream, StreamRole::kCompute);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PeerSchedules, ::testing::Values("lenet", "alexnet", "resnet20", "unet"),
                         [](const auto& test) { return test.param; });

TEST(PeerSchedules, OfRotorDependOnALimit) {
  const auto tape = tape_of("lenet");
  EXPECT_THROW(make_peer_schedule(*tape, Peer::kRotor, {}), InvalidArgument);
}

// --- rotor against a search of everything ------------------------------------------------------------------

// The fewest seconds of any persistent order of forward and backward ops in this memory. In a persistent
// order, a stored value stays until its backward pass, unless the very next op reads and drops it. The search
// is Dijkstra's algorithm. Its states are the set of stored values and the number of stages whose backward
// pass is still to come.
class Exhaustive {
 public:
  Exhaustive(std::vector<Stage> chain, std::uint64_t limit) : chain_(std::move(chain)), limit_(limit) {}

  double seconds() {
    queue_.emplace(0, State{.left = chain_.size()});
    while (!queue_.empty()) {
      const auto [seconds, state] = queue_.top();
      queue_.pop();
      if (state.left == 0) {
        return seconds;
      }
      if (done_.insert(state).second) {
        expand(seconds, state);
      }
    }
    return std::numeric_limits<double>::infinity();
  }

 private:
  static constexpr std::size_t kNone = 32;

  struct State {
    std::uint32_t outputs = 0;  // one bit per stage: only its output is stored
    std::uint32_t saved = 0;    // one bit per stage: all its values are stored
    std::size_t fresh = kNone;  // the stage of which the last op made only the output
    std::size_t left = 0;       // stages whose backward pass is still to come

    friend bool operator<(const State& a, const State& b) { return a.key() < b.key(); }
    friend bool operator>(const State& a, const State& b) { return b < a; }

   private:
    std::tuple<std::uint32_t, std::uint32_t, std::size_t, std::size_t> key() const {
      return {outputs, saved, fresh, left};
    }
  };

  static bool has(std::uint32_t set, std::size_t stage) { return (set >> stage & 1U) != 0; }
  static bool has_input(const State& state, std::size_t stage) {
    return stage == 0 || has(state.outputs | state.saved, stage - 1);
  }
  std::uint64_t bytes(const State& state) const {
    std::uint64_t sum = 0;
    for (std::size_t stage = 0; stage < chain_.size(); ++stage) {
      sum += has(state.saved, stage)     ? chain_[stage].saved_bytes
             : has(state.outputs, stage) ? chain_[stage].output_bytes
                                         : 0;
    }
    return sum;
  }

  void expand(double seconds, const State& state) {
    for (std::size_t stage = 0; stage < state.left; ++stage) {
      if (has_input(state, stage) && !has(state.outputs | state.saved, stage)) {
        run_forward(seconds, state, stage);
      }
    }
    run_backward(seconds, state);
  }

  void run_forward(double seconds, const State& state, std::size_t stage) {
    const bool input_is_fresh = stage > 0 && state.fresh == stage - 1;
    if (state.fresh != kNone && !input_is_fresh) {
      return;  // only an order that reads the last op's output next can be better
    }
    for (const bool save : {false, true}) {
      State next = state;
      (save ? next.saved : next.outputs) |= 1U << stage;
      next.fresh = save ? kNone : stage;
      if (bytes(next) + chain_[stage].forward_bytes > limit_) {
        continue;
      }
      queue_.emplace(seconds + chain_[stage].forward_seconds, next);
      if (input_is_fresh && !save) {  // the backward pass of a saved stage also reads the input
        next.outputs &= ~(1U << (stage - 1));
        queue_.emplace(seconds + chain_[stage].forward_seconds, next);
      }
    }
  }

  void run_backward(double seconds, State state) {
    const std::size_t stage = state.left - 1;
    if (state.fresh == kNone && has(state.saved, stage) && has_input(state, stage) &&
        bytes(state) + chain_[stage].backward_bytes <= limit_) {
      state.saved &= ~(1U << stage);
      state.outputs &= stage == 0 ? 0 : ~(1U << (stage - 1));
      --state.left;
      queue_.emplace(seconds + chain_[stage].backward_seconds, state);
    }
  }

  std::vector<Stage> chain_;
  std::uint64_t limit_;
  std::priority_queue<std::pair<double, State>, std::vector<std::pair<double, State>>, std::greater<>> queue_;
  std::set<State> done_;
};

std::vector<Stage> random_chain(std::minstd_rand& random) {
  const auto below = [&](std::uint64_t most) { return random() % most; };
  std::vector<Stage> chain(2 + below(4));
  for (Stage& stage : chain) {
    stage.forward_seconds = static_cast<double>(1 + below(9));
    stage.backward_seconds = static_cast<double>(1 + below(9));
    stage.output_bytes = 1 + below(4);
    stage.saved_bytes = stage.output_bytes + below(6);
    stage.forward_bytes = below(3);
    stage.backward_bytes = below(4);
  }
  return chain;
}

TEST(Rotor, IsTheBestOfAllPersistentOrders) {
  std::minstd_rand random(1);
  int compared = 0;
  for (int chain = 0; chain < 100; ++chain) {
    const std::vector<Stage> stages = random_chain(random);
    std::uint64_t all = 0;
    for (const Stage& stage : stages) {
      all += stage.saved_bytes + stage.forward_bytes + stage.backward_bytes;
    }
    const Rotor rotor(stages, all, all);
    for (std::uint64_t limit = 0; limit <= all; ++limit) {
      const double best = Exhaustive(stages, limit).seconds();
      EXPECT_EQ(rotor.seconds(limit), best) << "chain " << chain << ", limit " << limit;
      compared += std::isinf(best) ? 0 : 1;
    }
  }
  EXPECT_GT(compared, 500);
}

TEST(Rotor, SavesEverythingWhereThereIsMemoryAndCheckpointsWhereThereIsNone) {
  const std::vector<Stage> chain(
      4, {.forward_seconds = 1, .backward_seconds = 2, .output_bytes = 1, .saved_bytes = 10});
  const Rotor rotor(chain, 40, 40);
  EXPECT_EQ(rotor.seconds(40), 12);
  const std::vector<Saving> everything = *rotor.savings(40);
  for (const Saving& saving : everything) {
    EXPECT_EQ(saving.all, 4U);
  }
  EXPECT_FALSE(rotor.savings(10));
  // The limit suffices for all outputs and one whole stage.
  EXPECT_EQ(rotor.seconds(13), 15);
  const std::vector<Saving> savings = *rotor.savings(13);
  EXPECT_EQ(savings[3].all, 4U);
  for (std::size_t stage = 0; stage < 3; ++stage) {
    EXPECT_EQ(savings[stage].output, 4U);
    EXPECT_EQ(savings[stage].all, stage);
  }
  // The limit suffices for hardly more than one stage, so every backward pass needs a sweep from the
  // beginning.
  EXPECT_EQ(rotor.seconds(11), 12 + 3 + 2 + 1);
  EXPECT_TRUE(std::isinf(rotor.seconds(10))) << "the last stage and its input need more";
}

}  // namespace
}  // namespace vdnn::peer_schedules_test
