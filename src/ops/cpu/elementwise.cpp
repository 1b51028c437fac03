// ReLU and addition, forward and backward: loops that work in place as well. NaN passes through, so that a
// run that diverges is seen in its loss. ReLU's gradient is told by Y, whose sign is that of X where it
// matters.

#include <array>
#include <cstring>

#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/loops.h"
#include "src/ops/cpu/recipes.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cpu {

namespace {

// `in` and `out` may be the same array, but no other overlap: `omp simd` holds.
struct ReluForward {
  static void apply(const OpOperands& operands, std::uint64_t begin, std::uint64_t end) {
    const float* const x = read_pointer<float>(operands, 0);
    float* const y = write_pointer<float>(operands, 0);
#pragma omp simd
    for (std::uint64_t i = begin; i < end; ++i) {
      y[i] = x[i] < 0 ? 0.0F : x[i];
    }
  }
};

struct ReluBackward {
  static void apply(const OpOperands& operands, std::uint64_t begin, std::uint64_t end) {
    const float* const y = read_pointer<float>(operands, 0);
    const float* const dy = read_pointer<float>(operands, 1);
    float* const dx = write_pointer<float>(operands, 0);
#pragma omp simd
    for (std::uint64_t i = begin; i < end; ++i) {
      dx[i] = y[i] <= 0 ? 0.0F : dy[i];
    }
  }
};

struct Sum {
  static void apply(const OpOperands& operands, std::uint64_t begin, std::uint64_t end) {
    const float* const a = read_pointer<float>(operands, 0);
    const float* const b = read_pointer<float>(operands, 1);
    float* const sum = write_pointer<float>(operands, 0);
#pragma omp simd
    for (std::uint64_t i = begin; i < end; ++i) {
      sum[i] = a[i] + b[i];
    }
  }
};

// The gradient of a sum with respect to either term.
struct Copy {
  static void apply(const OpOperands& operands, std::uint64_t begin, std::uint64_t end) {
    const float* const dy = read_pointer<float>(operands, 0);
    float* const dx = write_pointer<float>(operands, 0);
    if (dx != dy) {
      std::memcpy(dx + begin, dy + begin, (end - begin) * sizeof(float));
    }
  }
};

template <class Function>
class ElementwiseKernel final : public CpuKernel {
 public:
  ElementwiseKernel(const Context& context, std::uint64_t elements)
      : threads_(context.threads), elements_(elements) {}

  void run(const OpOperands& operands, const StepScalars&) override {
    for_each_range(elements_, threads_, [&operands](std::uint64_t begin, std::uint64_t end) {
      Function::apply(operands, begin, end);
    });
  }

 private:
  int threads_;
  std::uint64_t elements_;
};

}  // namespace

LayerRecipe make_recipe(const Context&, const ReluSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const ReluSpec&,
                                       const KernelRequest& request) {
  const std::uint64_t elements = request.op.layer_outputs[0].elements();
  if (request.op.direction == Direction::kForward) {
    return std::make_unique<ElementwiseKernel<ReluForward>>(context, elements);
  }
  return std::make_unique<ElementwiseKernel<ReluBackward>>(context, elements);
}

LayerRecipe make_recipe(const Context&, const AddSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const AddSpec&, const KernelRequest& request) {
  const std::uint64_t elements = request.op.layer_outputs[0].elements();
  if (request.op.direction == Direction::kForward) {
    return std::make_unique<ElementwiseKernel<Sum>>(context, elements);
  }
  return std::make_unique<ElementwiseKernel<Copy>>(context, elements);
}

}  // namespace vdnn::cpu
