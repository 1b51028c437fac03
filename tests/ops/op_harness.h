#pragma once
// Runs one layer (or one update) alone. It has a tape made of the layer's recipe, a program for any of the
// layer's algorithms, and a guarded buffer for each operand. Before every run the harness fills the outputs
// and the workspace with NaN and makes the inputs read-only. Afterwards it checks that the op wrote nothing
// beside the operands.

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/ops/channels_last.h"
#include "tests/ops/guarded_buffer.h"
#include "tests/ops/reference.h"
#include "vdnn/op_library.h"
#include "vdnn/tape.h"

namespace vdnn::testing {

struct LayerCase {
  std::string name;
  OpSpec spec;
  std::vector<TensorType> inputs;
  TensorType output;
};

class OpHarness {
 public:
  // A harness for a layer. The ops of the forward pass come first, then those of the backward pass.
  OpHarness(OpLibrary& library, const LayerCase& layer, Mode mode = Mode::kTraining, std::size_t shift = 0);
  // A harness for one op, the update of this parameter.
  enum class Scaled : std::uint8_t { kNot, kToANorm, kForTheLoss };  // the gradient's scaling
  OpHarness(OpLibrary& library, const OptimizerSpec& spec, const ParameterRecipe& parameter,
            Scaled scaled = Scaled::kNot);
  OpHarness(OpLibrary& library, const OptimizerSpec& spec, const ParameterRecipe& parameter, bool clipped)
      : OpHarness(library, spec, parameter, clipped ? Scaled::kToANorm : Scaled::kNot) {}
  // A harness for one op, the norm of the gradients of these parameters.
  OpHarness(OpLibrary& library, const GradientNormSpec& spec, const std::vector<ParameterRecipe>& parameters);
  // A harness for one op, which adds the gradient of this parameter to the sum over a step's micro-batches.
  OpHarness(OpLibrary& library, const GradientSumSpec& spec, const ParameterRecipe& parameter);

  const Tape& tape() const { return *tape_; }
  const OpRecipe& recipe(OpId op) const { return ops_[op]; }
  std::span<const OpRecipe> recipes() const { return ops_; }
  // Returns the op that writes the operand; fails the test if there is none.
  OpId writer(const Operand& operand) const;

  // Converts an array in logical order, rounded to the operand's type. The operand has floating-point numbers
  // in a dense layout. Parameters, the copies that ops read, and their gradients may have any storage layout.
  void set(const Operand& operand, const reference::Array& array);
  reference::Array get(const Operand& operand);
  GuardedBuffer& buffer(const Operand& operand) { return *buffers_.at(key(operand)); }

  struct RunOptions {
    std::uint32_t algorithm = 0;
    std::optional<Overwrite> in_place;
    StepScalars scalars;
    bool keeps_writes = false;  // outputs keep the values that were set, instead of NaN
  };
  void run(OpId op, const RunOptions& options);
  void run(OpId op) { run(op, RunOptions{}); }

  OpProgram& program() { return *program_; }

 private:
  using Key = std::pair<OperandRole, std::uint32_t>;
  static Key key(const Operand& operand) { return {operand.role, operand.index}; }

  ValueId declare(const Operand& operand);
  ValueKind kind_of(const Operand& operand) const;
  TensorType type_of(const Operand& operand) const;
  std::uint64_t bytes_of(const Operand& operand) const;
  bool is_filter_like(const Operand& operand) const;
  void build_tape(const OpSpec& spec, Phase last_phase);
  void compile(OpId op, std::uint32_t algorithm);

  static TensorType copy_type(const ParameterRecipe& parameter);

  OpLibrary& library_;
  static constexpr std::int64_t kLossScaledNormFloats = sizeof(LossScaledNorm) / sizeof(float);
  std::int64_t norm_floats_ = 2;
  // True for a layer, whose ops read the copies of parameters; false for an update, which writes them.
  bool reads_copies_ = false;
  std::vector<TensorType> inputs_;
  std::vector<TensorType> outputs_;
  std::vector<ParameterRecipe> parameters_;
  std::vector<ValueRecipe> saved_;
  std::vector<ValueRecipe> gradient_statistics_;
  std::vector<OpRecipe> ops_;
  std::size_t forward_ops_ = 0;
  std::size_t shift_ = 0;
  std::map<Key, ValueId> values_;
  std::map<Key, std::unique_ptr<GuardedBuffer>> buffers_;
  Tape::Parts parts_;
  std::unique_ptr<Tape> tape_;
  std::vector<std::uint32_t> algorithms_;
  std::unique_ptr<OpProgram> program_;
};

}  // namespace vdnn::testing
