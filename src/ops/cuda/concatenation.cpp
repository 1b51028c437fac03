// Concatenation of channels. Each input is a table with a row per place and a column per channel. The forward
// pass copies it into some columns of a wider table, the output. The backward pass copies these columns of dY
// to dX.

#include "src/ops/cuda/copies.h"
#include "src/ops/cuda/layer_ops.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cuda {

namespace {

// Bytes of the channels of one place.
std::uint64_t row_bytes(const TensorType& type) {
  return static_cast<std::uint64_t>(type.dims[1]) * size_of(type.data_type);
}

}  // namespace

LayerRecipe make_recipe(const ConcatenationSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

OpKernel make_kernel(const ConcatenationSpec&, const KernelRequest& request) {
  std::vector<std::uint64_t> rows;
  for (const TensorType& input : request.op.layer_inputs) {
    rows.push_back(row_bytes(input));
  }
  const std::uint64_t all = row_bytes(request.op.layer_outputs[0]);
  const std::uint64_t places = request.op.layer_outputs[0].bytes() / all;
  if (request.op.direction == Direction::kForward) {
    return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
      std::uint64_t column = operands.writes[0].begin;
      for (std::size_t input = 0; input < rows.size(); ++input) {
        launch_copy(launcher, {operands.reads[input].begin, rows[input]}, {column, all}, places, rows[input]);
        column += rows[input];
      }
    };
  }
  const std::uint64_t own = rows.at(request.op.position);
  std::uint64_t before = 0;
  for (std::size_t input = 0; input < request.op.position; ++input) {
    before += rows[input];
  }
  return [=](const OpOperands& operands, const StepScalars&, const Launcher& launcher) {
    launch_copy(launcher, {operands.reads[0].begin + before, all}, {operands.writes[0].begin, own}, places,
                own);
  };
}

}  // namespace vdnn::cuda
