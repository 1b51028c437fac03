// ReLU, sigmoid, addition and conversion, forward and backward. The loops also work in place. A NaN in X
// gives a NaN in Y, so that the loss shows that a run diverges. Backward needs only Y: ReLU's slope depends
// on the sign of X, which Y has too, and a sigmoid's slope is y (1 - y).

#include <cmath>
#include <cstring>
#include <utility>

#include "src/ops/cpu/formats.h"
#include "src/ops/cpu/layer_ops.h"
#include "src/ops/cpu/loops.h"
#include "src/ops/cpu/recipes.h"
#include "src/ops/standard_recipes.h"

namespace vdnn::cpu {

namespace {

// Read and written arrays are identical or do not overlap, so `omp simd` is valid. Conditions choose between
// a value and a constant, which g++ compiles without a branch. A branch would be mispredicted half of the
// time.
template <class Format>
struct ReluForward {
  static void apply(const OpOperands& operands, std::uint64_t begin, std::uint64_t end) {
    const ReadElements<Format> x(operands, 0);
    const WriteElements<Format> y(operands, 0);
#pragma omp simd
    for (std::uint64_t i = begin; i < end; ++i) {
      y.set(i, x[i] < 0 ? 0.0F : x[i]);
    }
  }
};

template <class Format>
struct ReluBackward {
  static void apply(const OpOperands& operands, std::uint64_t begin, std::uint64_t end) {
    const ReadElements<Format> y(operands, 0);
    const ReadElements<Format> dy(operands, 1);
    const WriteElements<Format> dx(operands, 0);
#pragma omp simd
    for (std::uint64_t i = begin; i < end; ++i) {
      const float gradient = dy[i];
      dx.set(i, y[i] <= 0 ? 0.0F : gradient);
    }
  }
};

template <class Format>
struct LeakyReluForward {
  float slope = 0;

  void apply(const OpOperands& operands, std::uint64_t begin, std::uint64_t end) const {
    const ReadElements<Format> x(operands, 0);
    const WriteElements<Format> y(operands, 0);
    const float below = slope;
#pragma omp simd
    for (std::uint64_t i = begin; i < end; ++i) {
      const float value = x[i];
      const float positive = value < 0 ? 0.0F : value;
      const float negative = value < 0 ? value : 0.0F;
      y.set(i, positive + below * negative);
    }
  }
};

template <class Format>
struct LeakyReluBackward {
  float slope = 0;

  void apply(const OpOperands& operands, std::uint64_t begin, std::uint64_t end) const {
    const ReadElements<Format> y(operands, 0);
    const ReadElements<Format> dy(operands, 1);
    const WriteElements<Format> dx(operands, 0);
    const float below = slope;
#pragma omp simd
    for (std::uint64_t i = begin; i < end; ++i) {
      const float gradient = dy[i];
      const float above_zero = y[i] <= 0 ? 0.0F : gradient;
      const float below_zero = y[i] <= 0 ? gradient : 0.0F;
      dx.set(i, above_zero + below * below_zero);
    }
  }
};

// The exponential of -|x| is never large, so that small results keep their accuracy.
template <class Format>
struct SigmoidForward {
  static void apply(const OpOperands& operands, std::uint64_t begin, std::uint64_t end) {
    const ReadElements<Format> x(operands, 0);
    const WriteElements<Format> y(operands, 0);
    for (std::uint64_t i = begin; i < end; ++i) {
      const float power = std::exp(-std::abs(x[i]));
      y.set(i, (x[i] < 0 ? power : 1.0F) / (1.0F + power));
    }
  }
};

template <class Format>
struct SigmoidBackward {
  static void apply(const OpOperands& operands, std::uint64_t begin, std::uint64_t end) {
    const ReadElements<Format> y(operands, 0);
    const ReadElements<Format> dy(operands, 1);
    const WriteElements<Format> dx(operands, 0);
#pragma omp simd
    for (std::uint64_t i = begin; i < end; ++i) {
      dx.set(i, dy[i] * (y[i] * (1.0F - y[i])));
    }
  }
};

template <class Format>
struct Sum {
  static void apply(const OpOperands& operands, std::uint64_t begin, std::uint64_t end) {
    const ReadElements<Format> a(operands, 0);
    const ReadElements<Format> b(operands, 1);
    const WriteElements<Format> sum(operands, 0);
#pragma omp simd
    for (std::uint64_t i = begin; i < end; ++i) {
      sum.set(i, a[i] + b[i]);
    }
  }
};

// The gradient of a sum with respect to one term.
template <class Format>
struct Copy {
  static void apply(const OpOperands& operands, std::uint64_t begin, std::uint64_t end) {
    const ReadElements<Format> dy(operands, 0);
    const WriteElements<Format> dx(operands, 0);
    if (dx.bits != dy.bits) {
      std::memcpy(dx.bits + begin, dy.bits + begin, (end - begin) * sizeof(typename Format::Bits));
    }
  }
};

template <class From, class To>
struct Convert {
  static void apply(const OpOperands& operands, std::uint64_t begin, std::uint64_t end) {
    const ReadElements<From> from(operands, 0);
    const WriteElements<To> to(operands, 0);
#pragma omp simd
    for (std::uint64_t i = begin; i < end; ++i) {
      to.set(i, from[i]);
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

template <class Function>
std::unique_ptr<CpuKernel> elementwise_kernel(const Context& context, const KernelRequest& request,
                                              const Function& function) {
  return std::make_unique<ElementwiseKernel<Function>>(context, request, function);
}

// One function per pass, compiled for the format of the layer's maps. `make` returns both functions for a
// format.
template <class Make>
std::unique_ptr<CpuKernel> pass_kernel(const Context& context, const KernelRequest& request,
                                       const Make& make) {
  return with_format(request.op.layer_outputs[0].data_type, [&](auto format) -> std::unique_ptr<CpuKernel> {
    const auto [forward, backward] = make(format);
    if (request.op.direction == Direction::kForward) {
      return elementwise_kernel(context, request, forward);
    }
    return elementwise_kernel(context, request, backward);
  });
}

}  // namespace

LayerRecipe make_recipe(const Context&, const ReluSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const ReluSpec& spec,
                                       const KernelRequest& request) {
  const float slope = spec.negative_slope;
  // If the slope is 0, negative values are not multiplied by it: zero times infinity would be NaN.
  if (slope == 0) {
    return pass_kernel(context, request, []<class Format>(Format) {
      return std::pair(ReluForward<Format>{}, ReluBackward<Format>{});
    });
  }
  return pass_kernel(context, request, [slope]<class Format>(Format) {
    return std::pair(LeakyReluForward<Format>{slope}, LeakyReluBackward<Format>{slope});
  });
}

LayerRecipe make_recipe(const Context&, const SigmoidSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const SigmoidSpec&,
                                       const KernelRequest& request) {
  return pass_kernel(context, request, []<class Format>(Format) {
    return std::pair(SigmoidForward<Format>{}, SigmoidBackward<Format>{});
  });
}

LayerRecipe make_recipe(const Context&, const AddSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

std::unique_ptr<CpuKernel> make_kernel(const Context& context, const AddSpec&, const KernelRequest& request) {
  return pass_kernel(context, request,
                     []<class Format>(Format) { return std::pair(Sum<Format>{}, Copy<Format>{}); });
}

LayerRecipe make_recipe(const Context&, const ConversionSpec& spec, const LayerTypes& types, Mode mode) {
  return ops::standard_recipe(spec, types, mode, {own_algorithm(), own_algorithm()});
}

// The backward pass converts the gradient back to the type of X.
std::unique_ptr<CpuKernel> make_kernel(const Context& context, const ConversionSpec&,
                                       const KernelRequest& request) {
  const bool forward = request.op.direction == Direction::kForward;
  const DataType input = request.op.layer_inputs[0].data_type;
  const DataType output = request.op.layer_outputs[0].data_type;
  return with_format(forward ? input : output, [&]<class From>(From) {
    return with_format(forward ? output : input, [&]<class To>(To) {
      return elementwise_kernel(context, request, Convert<From, To>{});
    });
  });
}

}  // namespace vdnn::cpu
