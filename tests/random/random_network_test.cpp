#include "tests/random/random_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "tests/exec/executor_rig.h"
#include "tests/random/network_trial.h"
#include "vdnn/classic_catalog.h"
#include "vdnn/cpu_ops.h"
#include "vdnn/custom_layer.h"
#include "vdnn/predictor.h"
#include "vdnn/schedule.h"

namespace vdnn::testing {
namespace {

constexpr std::uint64_t kSeeds = kNetworksOfTheSuite;

TEST(RandomNetwork, ASeedIsANetwork) {
  std::set<std::string> all;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const RandomNetwork network = make_random_network(seed);
    const RandomNetwork again = make_random_network(seed);
    EXPECT_EQ(describe(network), describe(again));
    EXPECT_EQ(random_batch(network.network, seed), random_batch(again.network, seed));
    all.insert(describe(network));
  }
  EXPECT_EQ(all.size(), kSeeds);
}

TEST(RandomNetwork, BatchesAreInputsOfTheNetwork) {
  bool some_class = false;
  bool no_class = false;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Network network = make_random_network(seed).network;
    const std::vector<std::vector<std::byte>> batch = random_batch(network, seed);
    ASSERT_EQ(batch.size(), 1 + network.targets().size());
    EXPECT_EQ(batch[0].size(), network.type(network.input()).bytes());
    for (const Layer& layer : network.layers()) {
      if (!is_loss(layer.spec)) {
        continue;
      }
      const auto target = std::ranges::find(network.targets(), layer.inputs[1]) - network.targets().begin();
      const std::vector<std::byte>& given = batch[1 + static_cast<std::size_t>(target)];
      ASSERT_EQ(given.size(), network.type(layer.inputs[1]).bytes());
      if (network.type(layer.inputs[1]).data_type == DataType::kI32) {
        std::vector<std::int32_t> classes(given.size() / sizeof(std::int32_t));
        std::memcpy(classes.data(), given.data(), given.size());
        const auto [least, most] = std::ranges::minmax(classes);
        EXPECT_GE(least, -1) << "seed " << seed;
        EXPECT_LT(most, network.type(layer.inputs[0]).dims[1]) << "seed " << seed;
        some_class = some_class || most > 0;
        no_class = no_class || least < 0;
      }
    }
  }
  EXPECT_TRUE(some_class && no_class);
}

// Counts, for each named feature, the networks that have it.
class Census {
 public:
  void count(const RandomNetwork& random) {
    seen_.clear();
    const Network& network = random.network;
    const Dims& images = network.type(network.input()).dims;
    see("batch " + std::to_string(images[0]));
    see("space of " + std::to_string(images.size() - 2) + " dimensions");
    std::map<std::uint32_t, int> readers;
    int losses = 0;
    for (const Layer& layer : network.layers()) {
      count(network, layer);
      losses += is_loss(layer.spec) ? 1 : 0;
      for (const std::uint32_t input : std::set(layer.inputs.begin(), layer.inputs.end())) {
        ++readers[input];
      }
    }
    see("several losses", losses > 1);
    see("losses that share targets", static_cast<std::size_t>(losses) > network.targets().size());
    see("several outputs", network.outputs().size() > 1);
    for (const auto& [feature_map, count] : readers) {
      see("feature map with three readers", count >= 3);
      see("feature map that is read and given back",
          std::ranges::find(network.outputs(), feature_map) != network.outputs().end());
    }
    see("feature map for the host alone",
        std::ranges::any_of(network.outputs(), [&](std::uint32_t output) { return readers[output] == 0; }));
    count(random.training);
    const Network typed = network.with_precision(random.training.precision);
    for (const Layer& layer : typed.layers()) {
      see("layer kind " + std::to_string(layer.spec.index()));  // includes conversions
    }
    for (const std::string& what : seen_) {
      ++counts_[what];
    }
  }

  const std::map<std::string, int>& counts() const { return counts_; }

 private:
  void see(const std::string& what, bool condition = true) {
    if (condition) {
      seen_.insert(what);
    }
  }

  void count(const Network& network, const Layer& layer) {
    see("layer that reads a feature map twice",
        std::set(layer.inputs.begin(), layer.inputs.end()).size() < layer.inputs.size());
    const Dims& dims = network.type(layer.output).dims;
    see("channels " + std::to_string(dims.size() > 1 ? dims[1] : 0));
    see("uneven extents", dims.size() > 3 && dims[2] != dims[3]);
    if (const auto* convolution = std::get_if<ConvolutionSpec>(&layer.spec)) {
      see("groups", convolution->groups > 1);
      see("dilation", !convolution->dilation.empty());
      see("stride", std::ranges::any_of(convolution->stride, [](std::int64_t s) { return s > 1; }));
      see("no bias", !convolution->bias);
    }
    if (const auto* pooling = std::get_if<PoolingSpec>(&layer.spec)) {
      see(pooling->mode == PoolingMode::kMax ? "max pooling" : "average pooling");
    }
    if (const auto* upsampling = std::get_if<UpsamplingSpec>(&layer.spec)) {
      see(upsampling->mode == UpsamplingMode::kLinear ? "linear upsampling" : "nearest upsampling");
    }
    if (const auto* custom = std::get_if<CustomSpec>(&layer.spec)) {
      see(custom->layer->kind());
    }
  }

  void count(const TrainingOptions& training) {
    if (const auto* sgd = std::get_if<SgdSpec>(&training.optimizer)) {
      see(sgd->momentum > 0 ? "momentum" : "plain sgd");
    } else {
      see(std::get<AdamSpec>(training.optimizer).decoupled ? "adamw" : "adam");
    }
    see("clipping", training.clip_norm.has_value());
    see("results", !training.results.empty());
    see(to_string(training.precision.storage));
    see("layers that keep fp32", !training.precision.fp32_layers.empty());
  }

  std::set<std::string> seen_;  // in the current network
  std::map<std::string, int> counts_;
};

TEST(RandomNetwork, TheSuitesNetworksHaveSomeOfEverything) {
  Census census;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    census.count(make_random_network(seed));
  }
  std::vector<std::string> wanted{"several losses",
                                  "losses that share targets",
                                  "several outputs",
                                  "feature map with three readers",
                                  "feature map that is read and given back",
                                  "feature map for the host alone",
                                  "layer that reads a feature map twice",
                                  "channels 1",
                                  "channels 3",
                                  "channels 17",
                                  "uneven extents",
                                  "groups",
                                  "dilation",
                                  "stride",
                                  "no bias",
                                  "max pooling",
                                  "average pooling",
                                  "linear upsampling",
                                  "nearest upsampling",
                                  "doubling",
                                  "product",
                                  "plain sgd",
                                  "momentum",
                                  "adam",
                                  "adamw",
                                  "clipping",
                                  "results",
                                  "fp32",
                                  "bf16",
                                  "fp16",
                                  "layers that keep fp32"};
  // The last alternatives of OpSpec are not layers: two optimizers, the norm, sums and scaling of gradients.
  const std::size_t layers = OpSpec(SgdSpec{}).index();
  ASSERT_EQ(layers + 7, std::variant_size_v<OpSpec>);
  for (std::size_t kind = 0; kind < layers; ++kind) {
    wanted.push_back("layer kind " + std::to_string(kind));
  }
  for (int batch = 1; batch <= 5; ++batch) {
    wanted.push_back("batch " + std::to_string(batch));
  }
  for (int rank = 0; rank <= 3; ++rank) {
    wanted.push_back("space of " + std::to_string(rank) + " dimensions");
  }
  for (const std::string& what : wanted) {
    const auto found = census.counts().find(what);
    const int count = found == census.counts().end() ? 0 : found->second;
    EXPECT_GE(count, static_cast<int>(kSeeds / 16)) << what;
  }
}

// --- schedules ---------------------------------------------------------------------------------------------

// Counts, by name, the features of tapes and schedules that could hide an error.
class ScheduleCensus {
 public:
  void count(const std::string& catalog, const Tape& tape) {
    for (const Op& op : tape.ops()) {
      counts_[catalog + ", ops with a choice of algorithms"] += op.algorithms.size() > 1 ? 1 : 0;
    }
    for (const Policy policy : kPolicies) {
      count(catalog + ", " + to_string(policy), tape, schedule_of(tape, policy));
    }
  }

  const std::map<std::string, int>& counts() const { return counts_; }

 private:
  void count(const std::string& where, const Tape& tape, const Schedule& schedule) {
    int& overwritten = counts_[where + ", overwritten operands"];
    int& offloads = counts_[where + ", offloads"];
    int& prefetches = counts_[where + ", prefetches"];
    for (const Instruction& instruction : schedule.instructions) {
      overwritten += overwritten_operands(tape, instruction);
      offloads += instruction.kind == InstructionKind::kOffload ? 1 : 0;
      prefetches += instruction.kind == InstructionKind::kPrefetch ? 1 : 0;
    }
    std::uint64_t apart = 0;
    for (const Buffer& buffer : schedule.buffers) {
      apart += buffer.space == Space::kDevice ? buffer.bytes : 0;
    }
    const Prediction predicted = predict(tape, schedule, {.profile = finest_profile()});
    counts_[where + ", schedules that reuse memory"] += predicted.peak_bytes < apart ? 1 : 0;
  }

  static int overwritten_operands(const Tape& tape, const Instruction& instruction) {
    if (instruction.kind != InstructionKind::kLaunch) {
      return 0;
    }
    const Op& op = tape.op(instruction.op);
    return static_cast<int>(std::ranges::count_if(op.may_overwrite, [&](const Overwrite& permission) {
      return op.writes[permission.write] != op.reads[permission.read] &&
             instruction.operands[op.reads.size() + permission.write] ==
                 instruction.operands[permission.read];
    }));
  }

  std::map<std::string, int> counts_;
};

// Layers alone prove little. If no schedule overwrote, moved or reused memory or chose between algorithms,
// the suite would pass without testing any of that.
TEST(RandomNetwork, TheSuitesSchedulesHaveSomeOfEverything) {
  constexpr int kSample = 40;
  const auto cpu = make_cpu_ops({.threads = 1});
  const auto classic = make_classic_catalog();
  ScheduleCensus census;
  for (int seed = 0; seed < kSample; ++seed) {
    const RandomNetwork random = make_random_network(static_cast<std::uint64_t>(seed));
    census.count("cpu", *lower_to_tape(random.network, cpu->catalog(), random.training));
    census.count("classic", *lower_to_tape(random.network, *classic, random.training));
  }
  std::map<std::string, int> wanted;
  for (const std::string catalog : {"cpu", "classic"}) {
    wanted[catalog + ", ops with a choice of algorithms"] = kSample;
    for (const Policy policy : kPolicies) {
      wanted[catalog + ", " + to_string(policy) + ", overwritten operands"] = 5 * kSample;
    }
    for (const Policy policy : {Policy::kOffloadAll, Policy::kOffloadConv}) {
      wanted[catalog + ", " + to_string(policy) + ", offloads"] = kSample;
      wanted[catalog + ", " + to_string(policy) + ", prefetches"] = kSample;
    }
    for (const Policy policy : {Policy::kOffloadNone, Policy::kOffloadAll, Policy::kOffloadConv}) {
      wanted[catalog + ", " + to_string(policy) + ", schedules that reuse memory"] = kSample / 2;
    }
  }
  for (const auto& [what, least] : wanted) {
    EXPECT_GE(census.counts().at(what), least) << what;
  }
}

}  // namespace
}  // namespace vdnn::testing
