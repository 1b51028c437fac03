#pragma once
// Tapes that the tests of plans and schedules share.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/fakes/fake_catalog.h"
#include "tests/plan/dropping_plan.h"
#include "tests/plan/lives_plan.h"
#include "vdnn/error.h"
#include "vdnn/network.h"
#include "vdnn/schedule.h"
#include "vdnn/zoo.h"

namespace vdnn::testing {

using TapePtr = std::shared_ptr<const Tape>;

inline const TrainingOptions kMomentum{.optimizer = SgdSpec{.momentum = 0.9F}};

inline TapePtr model_tape(const std::string& model, const fakes::FakeCatalogOptions& options = {}) {
  return lower_to_tape(make_model({.model = model, .input = {}, .classes = 0, .batch = 2}),
                       fakes::FakeCatalog(options), kMomentum);
}

inline ConvolutionSpec same_convolution(std::int64_t filters) {
  return {.filters = filters, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}};
}

// Three layers read one feature map: two convolutions and, after them, an addition.
inline Network forked_network() {
  NetworkBuilder net("forked", {2, 1, 8, 8});
  const Tensor trunk = net.relu("relu1", net.convolution("conv1", net.input(), same_convolution(4)));
  const Tensor left = net.convolution("left", trunk, same_convolution(4));
  const Tensor right = net.convolution("right", trunk, same_convolution(4));
  Tensor x = net.add("skip", net.add("join", left, right), trunk);
  x = net.pooling("pool", x,
                  {.mode = PoolingMode::kMax, .kernel = {2, 2}, .stride = {2, 2}, .padding = {0, 0}});
  net.softmax_cross_entropy("loss", net.fully_connected("fc", x, {.outputs = 3}));
  return std::move(net).build();
}

inline TapePtr forked_tape(const fakes::FakeCatalogOptions& options = {}) {
  return lower_to_tape(forked_network(), fakes::FakeCatalog(options), kMomentum);
}

// Two ranks with two micro-steps each. The buckets are small, so that there are several.
inline TapePtr collective_tape() {
  TrainingOptions options = kMomentum;
  options.ranks = 2;
  options.micro_steps = 2;
  options.bucket_bytes = 256;
  return lower_to_tape(forked_network(), fakes::FakeCatalog(), options);
}

// Builds a hand-made tape; everything not specified is minimal.
class TapeDraft {
 public:
  ValueId value(const std::string& name, ValueKind kind, std::uint64_t bytes) {
    parts_.values.push_back({.name = name, .kind = kind, .type = {}, .bytes = bytes});
    const auto id = static_cast<ValueId>(parts_.values.size() - 1);
    if (parts_.values.back().loaded()) {
      parts_.inputs.push_back(id);
    }
    if (kind == ValueKind::kParameter) {
      ParameterRecipe recipe;
      recipe.name = name;
      recipe.storage_bytes = bytes;
      parts_.parameters.push_back({.value = id, .state = {}, .recipe = recipe});
    }
    if (kind == ValueKind::kMetrics) {
      parts_.results.push_back(id);
      parts_.loss_weights.push_back(1);
    }
    return id;
  }
  std::uint32_t layer(const std::string& name, bool convolution = false) {
    parts_.layers.push_back({.name = name, .convolution = convolution, .classifier = false});
    return static_cast<std::uint32_t>(parts_.layers.size() - 1);
  }
  void op(const std::string& name, std::optional<std::uint32_t> layer, Phase phase,
          std::vector<ValueId> reads, std::vector<ValueId> writes, std::vector<Overwrite> may_overwrite = {},
          std::vector<Algorithm> algorithms = {{"only", 0}}) {
    parts_.ops.push_back({.name = name,
                          .layer = layer,
                          .phase = phase,
                          .direction = Direction::kForward,
                          .spec = ReluSpec{},
                          .layer_inputs = {},
                          .layer_outputs = {},
                          .reads = std::move(reads),
                          .writes = std::move(writes),
                          .may_overwrite = std::move(may_overwrite),
                          .algorithms = std::move(algorithms),
                          .cost = {}});
  }
  TapePtr finish() {
    parts_.model = "by hand";
    return std::make_shared<const Tape>(std::move(parts_));
  }

 private:
  Tape::Parts parts_;
};

// One convolution and a loss that reads the convolution's output again in its backward pass.
inline TapePtr tiny_tape() {
  TapeDraft draft;
  const ValueId images = draft.value("images", ValueKind::kInput, 64);
  const ValueId targets = draft.value("targets", ValueKind::kTarget, 8);
  const ValueId w = draft.value("w", ValueKind::kParameter, 16);
  const ValueId y = draft.value("y", ValueKind::kFeatureMap, 64);
  const ValueId metrics = draft.value("metrics", ValueKind::kMetrics, 8);
  const ValueId p = draft.value("p", ValueKind::kSaved, 64);
  const ValueId dy = draft.value("dy", ValueKind::kGradientMap, 64);
  const ValueId dw = draft.value("dw", ValueKind::kParameterGradient, 16);
  const std::uint32_t conv = draft.layer("conv", true);
  const std::uint32_t loss = draft.layer("loss");
  draft.op("conv.forward", conv, Phase::kForward, {images, w}, {y}, {}, {{"fast", 128}, {"lean", 0}});
  draft.op("loss.forward", loss, Phase::kForward, {y, targets}, {metrics, p});
  draft.op("loss.backward", loss, Phase::kBackward, {p, y}, {dy}, {{.write = 0, .read = 0}});
  draft.op("conv.backward", conv, Phase::kBackward, {images, dy}, {dw});
  draft.op("w.update", conv, Phase::kUpdate, {w, dw}, {w});
  return draft.finish();
}

inline std::vector<Policy> all_policies() {
  return {Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadAll, Policy::kOffloadConv};
}

inline std::vector<AlgorithmPreference> all_preferences() {
  return {AlgorithmPreference::kMemory, AlgorithmPreference::kPerformance};
}

inline Plan plan_of(const Tape& tape, Policy policy,
                    AlgorithmPreference preference = AlgorithmPreference::kPerformance) {
  return make_plan(tape, {.policy = policy, .preference = preference, .workspace_limit = std::nullopt});
}

inline Schedule schedule_of(const Tape& tape, Policy policy,
                            AlgorithmPreference preference = AlgorithmPreference::kPerformance) {
  return make_schedule(tape, plan_of(tape, policy, preference));
}

// A schedule under test, with a name for messages.
struct Subject {
  std::string name;  // network, policy, preference
  TapePtr tape;
  Schedule schedule;
};

inline std::vector<Subject> subjects_of(const std::string& network, const TapePtr& tape) {
  std::vector<Subject> result;
  for (const Policy policy : all_policies()) {
    for (const AlgorithmPreference preference : all_preferences()) {
      result.push_back({network + ", " + to_string(policy) + ", " + to_string(preference), tape,
                        schedule_of(*tape, policy, preference)});
    }
  }
  for (const std::size_t offloaded : {0, 2}) {
    for (const std::uint64_t alignment : {0, 64}) {
      result.push_back({network + ", one of " + std::to_string(offloaded) + " offloaded, others recomputed" +
                            (alignment > 0 ? ", placed" : ""),
                        tape, make_schedule(*tape, dropping_plan(*tape, offloaded, alignment))});
    }
  }
  for (const std::uint64_t alignment : {0, 64}) {
    result.push_back({network + ", several lives" + (alignment > 0 ? ", placed" : ""), tape,
                      make_schedule(*tape, lives_plan(*tape, alignment, alignment))});
  }
  return result;
}

// Every policy on several networks.
inline std::vector<Subject> all_subjects() {
  std::vector<Subject> result;
  for (const auto& [network, tape] :
       std::vector<std::pair<std::string, TapePtr>>{{"lenet", model_tape("lenet")},
                                                    {"fashion-vgg", model_tape("fashion-vgg")},
                                                    {"forked", forked_tape({.pooling_reads_x_and_y = true})},
                                                    {"collective", collective_tape()}}) {
    for (Subject& subject : subjects_of(network, tape)) {
      result.push_back(std::move(subject));
    }
  }
  return result;
}

// Throws if there is no such value.
inline ValueId value_named(const Tape& tape, const std::string& name) {
  for (ValueId id = 0; id < tape.values().size(); ++id) {
    if (tape.value(id).name == name) {
      return id;
    }
  }
  throw InvalidArgument("no value '" + name + "'");
}
inline OpId op_named(const Tape& tape, const std::string& name) {
  for (OpId id = 0; id < tape.ops().size(); ++id) {
    if (tape.op(id).name == name) {
      return id;
    }
  }
  throw InvalidArgument("no op '" + name + "'");
}

}  // namespace vdnn::testing
