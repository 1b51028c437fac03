// Dropout. Both passes are the same function, since each recomputes the mask from its key. In inference, and
// with a probability of 0, the function is a copy.

#include <algorithm>
#include <bit>
#include <cstring>

#include "src/ops/cpu/formats.h"
#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/loops.h"
#include "src/ops/cpu/recipes.h"
#include "src/ops/dropout_mask.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cpu {

namespace {

// The name distinguishes the op of inference from the op of training, since both have the same operands.
constexpr std::string_view kCopyAlgorithm = "copy";

// Returns the value or zero. It uses no branch, since a branch would often be mispredicted.
float keep_if(bool kept, float value) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & (0U - static_cast<std::uint32_t>(kept)));
}

template <class Format>
class DropoutKernel final : public CpuKernel {
 public:
  DropoutKernel(const Context& context, const DropoutSpec& spec, const TensorType& type)
      : threads_(context.threads),
        spec_(spec),
        scale_(static_cast<float>(1 / (1 - static_cast<double>(spec.probability)))),
        samples_(static_cast<std::uint64_t>(type.dims[0])),
        elements_(type.elements() / samples_) {}

  void run(const OpOperands& operands, const StepScalars& scalars) override {
    const Bits* const x = read_pointer<Bits>(operands, 0);
    Bits* const y = write_pointer<Bits>(operands, 0);
    const std::uint64_t pairs = (elements_ + 1) / 2;
    for_each_range(samples_ * pairs, threads_, [&](std::uint64_t begin, std::uint64_t end) {
      while (begin < end) {
        const std::uint64_t sample = begin / pairs;
        const std::uint64_t pair = begin % pairs;
        const std::uint64_t count = std::min(end - begin, pairs - pair);
        const ops::DropoutMask mask(spec_, scalars, scalars.first_sample + sample);
        drop(mask, x + sample * elements_, y + sample * elements_, pair, pair + count);
        begin += count;
      }
    });
  }

 private:
  using Bits = typename Format::Bits;

  // Writes the elements of pairs [begin, end) of one sample. Pair i has elements 2 i and 2 i + 1, which share
  // a draw of the mask. The last pair may have only one element.
  void drop(const ops::DropoutMask& mask, const Bits* x, Bits* y, std::uint64_t begin,
            std::uint64_t end) const {
    for (std::uint64_t pair = begin; pair < end; ++pair) {
      const auto [first, second] = mask.kept(pair);
      const std::uint64_t element = 2 * pair;
      y[element] = Format::narrow(keep_if(first, scale_ * Format::widen(x[element])));
      if (element + 1 < elements_) {
        y[element + 1] = Format::narrow(keep_if(second, scale_ * Format::widen(x[element + 1])));
      }
    }
  }

  int threads_;
  DropoutSpec spec_;
  float scale_;
  std::uint64_t samples_;
  std::uint64_t elements_;  // per sample
};

class CopyKernel final : public CpuKernel {
 public:
  CopyKernel(const Context& context, const TensorType& type)
      : threads_(context.threads), bytes_(type.bytes()) {}

  void run(const OpOperands& operands, const StepScalars&) override {
    const std::byte* const x = read_pointer<std::byte>(operands, 0);
    std::byte* const y = write_pointer<std::byte>(operands, 0);
    if (x == y) {
      return;
    }
    for_each_range(bytes_, threads_, [=](std::uint64_t begin, std::uint64_t end) {
      std::memcpy(y + begin, x + begin, end - begin);
    });
  }

 private:
  int threads_;
  std::uint64_t bytes_;
};

}  // namespace

LayerRecipe make_recipe(const Context&, const DropoutSpec& spec, const LayerTypes& types, Mode mode) {
  if (mode == Mode::kInference) {
    return ops::standard_recipe(spec, types, mode, {.forward = {{.name = std::string(kCopyAlgorithm)}}});
  }
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const DropoutSpec& spec,
                                       const KernelRequest& request) {
  const TensorType& type = request.op.layer_inputs[0];
  if (request.op.algorithms[request.algorithm].name == kCopyAlgorithm) {
    return std::make_unique<CopyKernel>(context, type);
  }
  return with_format(type.data_type, [&]<class Format>(Format) -> std::unique_ptr<CpuKernel> {
    return std::make_unique<DropoutKernel<Format>>(context, spec, type);
  });
}

}  // namespace vdnn::cpu
