// Concatenation of channels. With channels last, the channels of a place are adjacent, so each input is a
// table with a row per place and a column per channel. The forward kernel copies it into some columns of a
// wider table, the output. A backward kernel copies these columns of dY to dX. Channels are counted in bytes,
// so that their type does not matter.

#include <cstring>

#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/loops.h"
#include "src/ops/cpu/recipes.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cpu {

namespace {

// The columns of the output that belong to an input.
struct Slice {
  std::uint64_t begin = 0;
  std::uint64_t channels = 0;
};

struct Problem {
  std::uint64_t places = 0;
  std::uint64_t channels = 0;  // of the output
  std::vector<Slice> slices;   // one per input

  explicit Problem(const Op& op) {
    const std::uint64_t element = size_of(op.layer_outputs[0].data_type);
    for (const TensorType& input : op.layer_inputs) {
      slices.push_back({.begin = channels, .channels = element * static_cast<std::uint64_t>(input.dims[1])});
      channels += slices.back().channels;
    }
    places = op.layer_outputs[0].bytes() / channels;
  }
};

// Copies `rows` rows of `columns` bytes, with the given distances between the rows of source and destination.
void copy_columns(const std::byte* from, std::uint64_t from_distance, std::byte* to,
                  std::uint64_t to_distance, std::uint64_t rows, std::uint64_t columns) {
  for (std::uint64_t row = 0; row < rows; ++row) {
    std::memcpy(to + row * to_distance, from + row * from_distance, columns);
  }
}

class ForwardKernel final : public CpuKernel {
 public:
  ForwardKernel(const Context& context, const Op& op) : threads_(context.threads), problem_(op) {}

  // Each thread writes whole rows of the output, one input after the other.
  void run(const OpOperands& operands, const StepScalars&) override {
    std::byte* const y = write_pointer<std::byte>(operands, 0);
    const auto copy_places = [&](std::uint64_t begin, std::uint64_t end) {
      for (std::size_t input = 0; input < problem_.slices.size(); ++input) {
        const Slice& slice = problem_.slices[input];
        copy_columns(read_pointer<std::byte>(operands, input) + begin * slice.channels, slice.channels,
                     y + begin * problem_.channels + slice.begin, problem_.channels, end - begin,
                     slice.channels);
      }
    };
    for_each_range(problem_.places, threads_, copy_places, problem_.channels);
  }

 private:
  int threads_;
  Problem problem_;
};

class BackwardKernel final : public CpuKernel {
 public:
  BackwardKernel(const Context& context, const Op& op)
      : threads_(context.threads), problem_(op), slice_(problem_.slices.at(op.position)) {}

  void run(const OpOperands& operands, const StepScalars&) override {
    const std::byte* const dy = read_pointer<std::byte>(operands, 0);
    std::byte* const dx = write_pointer<std::byte>(operands, 0);
    const auto copy_places = [&](std::uint64_t begin, std::uint64_t end) {
      copy_columns(dy + begin * problem_.channels + slice_.begin, problem_.channels,
                   dx + begin * slice_.channels, slice_.channels, end - begin, slice_.channels);
    };
    for_each_range(problem_.places, threads_, copy_places, slice_.channels);
  }

 private:
  int threads_;
  Problem problem_;
  Slice slice_;  // the slice of the input whose gradient the op computes
};

}  // namespace

LayerRecipe make_recipe(const Context&, const ConcatenationSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const ConcatenationSpec&,
                                       const KernelRequest& request) {
  if (request.op.direction == Direction::kForward) {
    return std::make_unique<ForwardKernel>(context, request.op);
  }
  return std::make_unique<BackwardKernel>(context, request.op);
}

}  // namespace vdnn::cpu
