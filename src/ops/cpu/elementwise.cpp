// ReLU, sigmoid and addition, forward and backward: loops that work in place as well. NaN passes through, so
// that a run that diverges is seen in its loss. Gradients are told by Y: ReLU's sign is that of X where it
// matters (a leaky one keeps it), and a sigmoid's slope is y (1 - y).

#include <cmath>
#include <cstring>

#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/loops.h"
#include "src/ops/cpu/recipes.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cpu {

namespace {

// Read and written arrays may be the same, but overlap in no other way: `omp simd` holds. Choices are
// between a value at hand and a constant, which g++ makes without a branch: one would be guessed wrong half
// of the time.
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
      const float gradient = dy[i];
      dx[i] = y[i] <= 0 ? 0.0F : gradient;
    }
  }
};

struct LeakyReluForward {
  float slope = 0;

  void apply(const OpOperands& operands, std::uint64_t begin, std::uint64_t end) const {
    const float* const x = read_pointer<float>(operands, 0);
    float* const y = write_pointer<float>(operands, 0);
    const float below = slope;
#pragma omp simd
    for (std::uint64_t i = begin; i < end; ++i) {
      const float value = x[i];
      const float positive = value < 0 ? 0.0F : value;
      const float negative = value < 0 ? value : 0.0F;
      y[i] = positive + below * negative;
    }
  }
};

struct LeakyReluBackward {
  float slope = 0;

  void apply(const OpOperands& operands, std::uint64_t begin, std::uint64_t end) const {
    const float* const y = read_pointer<float>(operands, 0);
    const float* const dy = read_pointer<float>(operands, 1);
    float* const dx = write_pointer<float>(operands, 0);
    const float below = slope;
#pragma omp simd
    for (std::uint64_t i = begin; i < end; ++i) {
      const float gradient = dy[i];
      const float above_zero = y[i] <= 0 ? 0.0F : gradient;
      const float below_zero = y[i] <= 0 ? gradient : 0.0F;
      dx[i] = above_zero + below * below_zero;
    }
  }
};

// The exponential is of -|x|: never large, so that small results keep their accuracy.
struct SigmoidForward {
  static void apply(const OpOperands& operands, std::uint64_t begin, std::uint64_t end) {
    const float* const x = read_pointer<float>(operands, 0);
    float* const y = write_pointer<float>(operands, 0);
    for (std::uint64_t i = begin; i < end; ++i) {
      const float power = std::exp(-std::abs(x[i]));
      y[i] = (x[i] < 0 ? power : 1.0F) / (1.0F + power);
    }
  }
};

struct SigmoidBackward {
  static void apply(const OpOperands& operands, std::uint64_t begin, std::uint64_t end) {
    const float* const y = read_pointer<float>(operands, 0);
    const float* const dy = read_pointer<float>(operands, 1);
    float* const dx = write_pointer<float>(operands, 0);
#pragma omp simd
    for (std::uint64_t i = begin; i < end; ++i) {
      dx[i] = dy[i] * (y[i] * (1.0F - y[i]));
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
  ElementwiseKernel(const Context& context, const KernelRequest& request, const Function& function)
      : threads_(context.threads), elements_(request.op.layer_outputs[0].elements()), function_(function) {}

  void run(const OpOperands& operands, const StepScalars&) override {
    for_each_range(elements_, threads_,
                   [&](std::uint64_t begin, std::uint64_t end) { function_.apply(operands, begin, end); });
  }

 private:
  int threads_;
  std::uint64_t elements_;
  Function function_;
};

// One function for each pass.
template <class Forward, class Backward>
std::unique_ptr<CpuKernel> elementwise_kernel(const Context& context, const KernelRequest& request,
                                              const Forward& forward, const Backward& backward) {
  if (request.op.direction == Direction::kForward) {
    return std::make_unique<ElementwiseKernel<Forward>>(context, request, forward);
  }
  return std::make_unique<ElementwiseKernel<Backward>>(context, request, backward);
}

}  // namespace

LayerRecipe make_recipe(const Context&, const ReluSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const ReluSpec& spec,
                                       const KernelRequest& request) {
  // Zero times an infinity would be none.
  if (spec.negative_slope == 0) {
    return elementwise_kernel(context, request, ReluForward{}, ReluBackward{});
  }
  return elementwise_kernel(context, request, LeakyReluForward{spec.negative_slope},
                            LeakyReluBackward{spec.negative_slope});
}

LayerRecipe make_recipe(const Context&, const SigmoidSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const SigmoidSpec&,
                                       const KernelRequest& request) {
  return elementwise_kernel(context, request, SigmoidForward{}, SigmoidBackward{});
}

LayerRecipe make_recipe(const Context&, const AddSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const AddSpec&, const KernelRequest& request) {
  return elementwise_kernel(context, request, Sum{}, Copy{});
}

}  // namespace vdnn::cpu
