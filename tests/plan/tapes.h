#pragma once
// Tapes that the tests of plans and schedules share.

#include <memory>
#include <string>
#include <vector>

#include "fakes/fake_catalog.h"
#include "vdnn/network.h"
#include "vdnn/plan.h"
#include "vdnn/zoo.h"

namespace vdnn::testing {

using TapePtr = std::shared_ptr<const Tape>;

inline constexpr SgdSpec kMomentum{.momentum = 0.9F, .weight_decay = 0};

inline TapePtr model_tape(const std::string& model, const fakes::FakeCatalogOptions& options = {}) {
  return lower_to_tape(make_model({.model = model, .input = {}, .classes = 0, .batch = 2}),
                       fakes::FakeCatalog(options), kMomentum);
}

inline ConvolutionSpec same_convolution(std::int64_t filters) {
  return {.filters = filters, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}};
}

// A feature map that three layers read: two convolutions and, past them, an addition.
inline Network forked_network() {
  NetworkBuilder net("forked", {2, 1, 8, 8});
  const Tensor trunk = net.relu("relu1", net.convolution("conv1", net.input(), same_convolution(4)));
  const Tensor left = net.convolution("left", trunk, same_convolution(4));
  const Tensor right = net.convolution("right", trunk, same_convolution(4));
  Tensor x = net.add("skip", net.add("join", left, right), trunk);
  x = net.pooling(
      "pool", x, {.mode = PoolingMode::kMax, .kernel = {2, 2}, .stride = {2, 2}, .padding = {0, 0}});
  net.softmax_cross_entropy("loss", net.fully_connected("fc", x, {.outputs = 3}));
  return std::move(net).build();
}

inline TapePtr forked_tape(const fakes::FakeCatalogOptions& options = {}) {
  return lower_to_tape(forked_network(), fakes::FakeCatalog(options), kMomentum);
}

inline std::vector<Policy> all_policies() {
  return {Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadAll, Policy::kOffloadConv};
}

inline std::vector<AlgorithmPreference> all_preferences() {
  return {AlgorithmPreference::kMemory, AlgorithmPreference::kPerformance};
}

// Throws where there is none.
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
