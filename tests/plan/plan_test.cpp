// Policies against expectations worked out by hand. Layers of fashion-vgg, in the tape's order: conv1_1
// relu1_1 conv1_2 relu1_2 pool1 | conv2_1 ... pool2 | conv3_1 ... pool3 | fc1 relu_fc1 fc2 loss.

#include "vdnn/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/tapes.h"
#include "vdnn/schedule.h"
#include "vdnn/size.h"

namespace vdnn::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// "value | leaves with | comes back with", in order of offload.
std::vector<std::string> transfers(const Tape& tape, Policy policy) {
  std::vector<std::string> lines;
  for (const Transfer& transfer : plan_of(tape, policy).transfers) {
    lines.push_back(tape.value(transfer.value).name + " | " + tape.op(transfer.offload_with).name + " | " +
                    tape.op(transfer.prefetch_with).name);
  }
  return lines;
}

TEST(Plan, NamesOfPolicies) {
  EXPECT_EQ(to_string(Policy::kBaseline), "baseline");
  EXPECT_EQ(to_string(Policy::kOffloadNone), "none");
  EXPECT_EQ(to_string(Policy::kOffloadAll), "all");
  EXPECT_EQ(to_string(Policy::kOffloadConv), "conv");
  EXPECT_EQ(to_string(AlgorithmPreference::kMemory), "memory");
  EXPECT_EQ(to_string(AlgorithmPreference::kPerformance), "performance");
}

TEST(Plan, BaselineAndNoneTransferNothing) {
  for (const std::string& model : {std::string("lenet"), std::string("fashion-vgg")}) {
    EXPECT_THAT(transfers(*model_tape(model), Policy::kBaseline), IsEmpty());
    EXPECT_THAT(transfers(*model_tape(model), Policy::kOffloadNone), IsEmpty());
  }
  EXPECT_TRUE(plan_of(*tiny_tape(), Policy::kBaseline).network_wide);
  EXPECT_FALSE(plan_of(*tiny_tape(), Policy::kOffloadNone).network_wide);
}

// Two kinds of values stay on the device: conv*.y, which its ReLU overwrites, and pool3.y, which the
// classifier reads. The backward pass of each layer searches the layers before it for one that needs a fetch;
// a convolution ends the search. The loss searches past the classifier and the pooling and finds relu3_2.y.
// fc2 finds the next value, relu3_1.y. The layers between fc2 and conv3_2 find nothing, since their search
// ends at convolution conv3_2. conv3_2 finds pool2.y, conv3_1 finds relu2_2.y, and so on.
TEST(Plan, AllOnFashionVgg) {
  EXPECT_THAT(transfers(*model_tape("fashion-vgg"), Policy::kOffloadAll),
              ElementsAre("images | conv1_1.forward | conv1_2.backward_filter",
                          "relu1_1.y | conv1_2.forward | pool1.backward_data",
                          "relu1_2.y | pool1.forward | conv2_1.backward_filter",
                          "pool1.y | conv2_1.forward | conv2_2.backward_filter",
                          "relu2_1.y | conv2_2.forward | pool2.backward_data",
                          "relu2_2.y | pool2.forward | conv3_1.backward_filter",
                          "pool2.y | conv3_1.forward | conv3_2.backward_filter",
                          "relu3_1.y | conv3_2.forward | fc2.backward_filter",
                          "relu3_2.y | pool3.forward | loss.backward_data"));
}

// `conv` offloads only inputs of convolutions. pool2 and relu2_2 need no fetch, so the search of conv3_1
// reaches conv2_2.
TEST(Plan, ConvOnFashionVgg) {
  EXPECT_THAT(transfers(*model_tape("fashion-vgg"), Policy::kOffloadConv),
              ElementsAre("images | conv1_1.forward | conv1_2.backward_filter",
                          "relu1_1.y | conv1_2.forward | conv2_1.backward_filter",
                          "pool1.y | conv2_1.forward | conv2_2.backward_filter",
                          "relu2_1.y | conv2_2.forward | conv3_1.backward_filter",
                          "pool2.y | conv3_1.forward | conv3_2.backward_filter",
                          "relu3_1.y | conv3_2.forward | loss.backward_data"));
}

// Max-pooling that saves indices reads no feature map in its backward pass.
TEST(Plan, AllAndConvOnLenet) {
  const TapePtr tape = model_tape("lenet");
  for (const Policy policy : {Policy::kOffloadAll, Policy::kOffloadConv}) {
    EXPECT_THAT(transfers(*tape, policy), ElementsAre("images | conv1.forward | conv2.backward_filter",
                                                      "pool1.y | conv2.forward | loss.backward_data"));
  }
}

// Here pooling reads X and Y. Both pool2 and the classifier read pool2.y, so this value stays on the device.
TEST(Plan, AllAndConvOnLenetWherePoolingReadsFeatureMaps) {
  const TapePtr tape = model_tape("lenet", {.pooling_reads_x_and_y = true});
  EXPECT_THAT(transfers(*tape, Policy::kOffloadAll),
              ElementsAre("images | conv1.forward | pool1.backward_data",
                          "conv1.y | pool1.forward | conv2.backward_filter",
                          "pool1.y | conv2.forward | fc2.backward_filter",
                          "conv2.y | pool2.forward | loss.backward_data"));
  EXPECT_THAT(transfers(*tape, Policy::kOffloadConv),
              ElementsAre("images | conv1.forward | conv2.backward_filter",
                          "pool1.y | conv2.forward | loss.backward_data"));
}

// The layers left, right and skip read relu1.y, so it leaves with skip, the last reader. In the backward
// pass, layer right needs it before layer left.
TEST(Plan, AForkLeavesWithItsLastReader) {
  const TapePtr tape = forked_tape();
  for (const Policy policy : {Policy::kOffloadAll, Policy::kOffloadConv}) {
    EXPECT_THAT(transfers(*tape, policy), ElementsAre("images | conv1.forward | left.backward_filter",
                                                      "relu1.y | skip.forward | loss.backward_data"));
  }
}

// The backward pass of the last layer reads y, and no backward pass that could fetch y comes earlier.
TEST(Plan, WhatNoWindowReachesIsFetchedOnDemand) {
  EXPECT_THAT(transfers(*tiny_tape(), Policy::kOffloadAll),
              ElementsAre("images | conv.forward | loss.backward", "y | loss.forward | loss.backward"));
}

// A feature map that the forward pass never reads leaves with the op that makes it.
TEST(Plan, WhatForwardNeverReadsLeavesWithItsProducer) {
  TapeDraft draft;
  const ValueId x = draft.value("x", ValueKind::kInput, 8);
  const ValueId y = draft.value("y", ValueKind::kFeatureMap, 8);
  const ValueId metrics = draft.value("metrics", ValueKind::kMetrics, 8);
  const ValueId dx = draft.value("dx", ValueKind::kGradientMap, 8);
  const std::uint32_t layer = draft.layer("layer");
  draft.op("forward", layer, Phase::kForward, {x}, {y, metrics});
  draft.op("backward", layer, Phase::kBackward, {y}, {dx});
  EXPECT_THAT(transfers(*draft.finish(), Policy::kOffloadAll), ElementsAre("y | forward | backward"));
}

// The sum of the metrics over ranks comes between the two passes and belongs to no layer. Regression: the sum
// counted as an op of layer 0 and fetched the images for that layer, before the backward pass of the loss.
TEST(Plan, WhatRanksDoTogetherOpensNoWindow) {
  const TapePtr alone = forked_tape();
  const TapePtr together = collective_tape();
  for (const Policy policy : {Policy::kOffloadAll, Policy::kOffloadConv}) {
    EXPECT_THAT(transfers(*together, policy), ElementsAreArray(transfers(*alone, policy)));
  }
}

TEST(Plan, WhatAnOpWithoutALayerReadsIsFetchedOnDemand) {
  TapeDraft draft;
  const ValueId x = draft.value("x", ValueKind::kInput, 8);
  const ValueId y = draft.value("y", ValueKind::kFeatureMap, 8);
  const ValueId metrics = draft.value("metrics", ValueKind::kMetrics, 8);
  const ValueId dx = draft.value("dx", ValueKind::kGradientMap, 8);
  const ValueId norm = draft.value("norm", ValueKind::kGradientNorm, 8);
  const std::uint32_t layer = draft.layer("layer", true);
  draft.op("forward", layer, Phase::kForward, {x}, {y, metrics});
  draft.op("before", std::nullopt, Phase::kBackward, {metrics}, {norm});
  draft.op("backward", layer, Phase::kBackward, {x}, {dx});
  draft.op("after", std::nullopt, Phase::kBackward, {y}, {});
  EXPECT_THAT(transfers(*draft.finish(), Policy::kOffloadAll),
              ElementsAre("x | forward | backward", "y | forward | after"));
}

// --- algorithms ----------------------------------------------------------------------------------

TapePtr tape_with_algorithms(std::vector<Algorithm> algorithms) {
  TapeDraft draft;
  const ValueId x = draft.value("x", ValueKind::kInput, 8);
  const ValueId metrics = draft.value("metrics", ValueKind::kMetrics, 8);
  draft.op("conv1.forward", draft.layer("conv1"), Phase::kForward, {x}, {metrics}, {}, std::move(algorithms));
  return draft.finish();
}

std::string chosen(const Tape& tape, AlgorithmPreference preference, std::optional<std::uint64_t> limit) {
  const Plan plan =
      make_plan(tape, {.policy = Policy::kOffloadNone, .preference = preference, .workspace_limit = limit});
  return tape.op(0).algorithms[plan.algorithms[0]].name;
}

TEST(Plan, PreferencesChooseAlgorithms) {
  const TapePtr tape =
      tape_with_algorithms({{"first", 100}, {"large", 400}, {"least", 40}, {"also least", 40}});
  EXPECT_EQ(chosen(*tape, AlgorithmPreference::kPerformance, std::nullopt), "first");
  EXPECT_EQ(chosen(*tape, AlgorithmPreference::kMemory, std::nullopt), "least");
}

TEST(Plan, AWorkspaceLimitStepsDown) {
  const TapePtr tape = tape_with_algorithms({{"fast", 400}, {"medium", 100}, {"least", 40}});
  const auto performance = [&](std::uint64_t limit) {
    return chosen(*tape, AlgorithmPreference::kPerformance, limit);
  };
  EXPECT_EQ(performance(400), "fast");
  EXPECT_EQ(performance(399), "medium");
  EXPECT_EQ(performance(99), "least");
  EXPECT_EQ(chosen(*tape, AlgorithmPreference::kMemory, 400), "least");
  EXPECT_EQ(chosen(*tape_with_algorithms({{"free", 0}}), AlgorithmPreference::kMemory, 0), "free");
  try {
    performance(39);
    FAIL() << "no algorithm meets the limit";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("conv1.forward"), HasSubstr(format_size(39)),
                                    HasSubstr("least"), HasSubstr(format_size(40))));
  }
}

TEST(Plan, PreferencesOnANetwork) {
  const TapePtr tape = model_tape("fashion-vgg");
  for (const auto& [preference, name] :
       {std::pair{AlgorithmPreference::kMemory, "lean"}, {AlgorithmPreference::kPerformance, "fast"}}) {
    const Plan plan = plan_of(*tape, Policy::kOffloadConv, preference);
    for (OpId id = 0; id < tape->ops().size(); ++id) {
      const auto& algorithms = tape->op(id).algorithms;
      EXPECT_EQ(algorithms[plan.algorithms[id]].name, algorithms.size() == 1 ? "only" : name)
          << tape->op(id).name;
    }
  }
}

// --- sums ----------------------------------------------------------------------------------------

// X: images 1x1x4x4, 64 bytes; conv.y 1x2x4x4, 128 bytes, whose memory relu.y reuses; fc.y 1x3, 12 bytes.
// Weights: filter 2x1x3x3, 72 bytes; bias 8; fc 3x2x4x4, 384; bias 12. The largest gradient map is that of
// relu.y, 128 bytes. Workspace: 192 bytes (X and Y) for the fast convolution, none for the lean one.
TEST(Plan, ThePapersAccountingByHand) {
  NetworkBuilder net("by hand", {1, 1, 4, 4});
  const Tensor x = net.relu("relu", net.convolution("conv", net.input(), same_convolution(2)));
  net.softmax_cross_entropy("loss", net.fully_connected("fc", x, {.outputs = 3}));
  const TapePtr tape = lower_to_tape(std::move(net).build(), fakes::FakeCatalog(), kMomentum);
  constexpr std::uint64_t kRest = (64 + 128 + 12) + (72 + 8 + 384 + 12) + 2 * 128;

  const Plan fast = plan_of(*tape, Policy::kBaseline);
  EXPECT_EQ(workspace_bytes(*tape, fast), 192);
  EXPECT_EQ(paper_baseline_bytes(*tape, fast), kRest + 192);
  const Plan lean = plan_of(*tape, Policy::kBaseline, AlgorithmPreference::kMemory);
  EXPECT_EQ(workspace_bytes(*tape, lean), 0);
  EXPECT_EQ(paper_baseline_bytes(*tape, lean), kRest);

  EXPECT_EQ(offload_bytes(*tape, make_schedule(*tape, fast)), 0);
  // The classifier reads relu.y, so relu.y stays on the device.
  EXPECT_EQ(offload_bytes(*tape, make_schedule(*tape, plan_of(*tape, Policy::kOffloadAll))), 64);
}

TEST(Plan, OffloadedBytesOnLenet) {
  // Batch 2: images 1x28x28, pool1.y 20x12x12; four bytes an element.
  const TapePtr tape = model_tape("lenet");
  EXPECT_EQ(offload_bytes(*tape, make_schedule(*tape, plan_of(*tape, Policy::kOffloadAll))),
            2 * 4 * (28 * 28 + 20 * 12 * 12));
}

}  // namespace
}  // namespace vdnn::testing
