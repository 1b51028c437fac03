#pragma once
// The state of a lowering: the values and ops of the tape so far, and records about each layer and feature
// map. The parts (forward, backward, updates, reductions, loss scaling) share the state.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/network/lowering/recipes.h"
#include "vdnn/network.h"
#include "vdnn/op_catalog.h"
#include "vdnn/tape.h"

namespace vdnn::lowering {

struct LayerState {
  LayerRecipe recipe;
  std::vector<std::size_t> kept;      // positions in recipe.backward of the ops that make a needed gradient
  std::vector<UpdateRecipe> updates;  // by parameter; empty if the parameter is not trained
  std::vector<ValueId> parameters;
  std::vector<ValueId> parameter_gradients;
  std::vector<ValueId> saved;
  std::vector<ValueId> gradient_statistics;
  std::size_t first_parameter = 0;  // index in Tape::Parts::parameters of the layer's first parameter
};

// The gradient of one feature map while its contributions are summed.
struct GradientSum {
  bool needed = false;         // whether the feature map depends on a parameter
  std::uint32_t expected = 0;  // total number of contributions
  std::uint32_t arrived = 0;
  ValueId value = kNone;  // sum of the arrived contributions
};

// A value that one op of a layer makes for the layer's later ops, and the value's recipe.
struct PassedOn {
  const ValueRecipe& recipe;
  ValueId& value;
};
constexpr bool is_passed_on(OperandRole role) {
  return role == OperandRole::kSaved || role == OperandRole::kGradientStatistic;
}

// The type of norms and scales: `bytes` bytes of fp32 numbers.
TensorType floats(std::size_t bytes);

// The catalog and the options must outlive this object.
struct LoweringState {
  // `options` is null for evaluation.
  LoweringState(Network of_network, const OpCatalog& of_device, const TrainingOptions* options);

  const Layer& layer(std::uint32_t id) const { return network.layers()[id]; }
  // The spec of the layer with which to query the catalog and to make the layer's ops.
  OpSpec spec_of(std::uint32_t id) const;
  std::vector<TensorType> input_types(std::uint32_t id) const;

  ValueId declare(std::string name, ValueKind kind, const TensorType& type, std::uint64_t bytes);
  // Requires is_passed_on(operand.role).
  PassedOn passed_on(std::uint32_t id, const Operand& operand);
  ValueId declare_passed_on(std::uint32_t id, const Operand& operand);

  // Makes an op of layer `id`. `make(operand)` declares the value of each write. It returns kNone if the
  // layer is not allowed to write that operand.
  template <class Make>
  Op layer_op(std::uint32_t id, Phase phase, const std::vector<OpRecipe>& recipes, std::size_t position,
              const Make& make) const {
    Op op = op_with_reads(id, phase, recipes, position);
    for (const Operand& operand : recipes[position].writes) {
      op.writes.push_back(make(operand));
      if (op.writes.back() == kNone) {
        reject_recipe(layer(id).name, "writes an operand that is not its own, in op " + op.name);
      }
    }
    return op;
  }
  // Adds an op that no layer's recipe has. Its algorithms are those of the catalog for a layer with the op's
  // spec.
  void add_catalog_op(Op op);

  const Network network;
  const OpCatalog& catalog;
  const TrainingOptions* const training;  // null: evaluation
  std::vector<LayerState> layers;
  std::vector<ValueId> feature_maps;   // kNone until it is made
  std::vector<GradientSum> gradients;  // by feature map
  std::vector<bool> reaches_loss;      // by layer: whether it has a backward pass
  std::vector<ValueId> metrics;        // by loss: the value that the host reads
  Tape::Parts parts;

 private:
  void find_ways_to_losses();
  ValueId read(std::uint32_t id, const Operand& operand) const;
  Op op_with_reads(std::uint32_t id, Phase phase, const std::vector<OpRecipe>& recipes,
                   std::size_t position) const;
};

}  // namespace vdnn::lowering
