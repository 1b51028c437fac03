#pragma once
// A layer with filters adds the bias to each channel. The gradient of the bias is a sum over places and
// samples. Bias and gradient are fp32.

#include <cstdint>

#include "src/ops/cuda/kernels/column_sums.h"
#include "src/ops/cuda/kernels/divisor.h"
#include "src/ops/cuda/kernels/packs.h"

namespace vdnn::cuda {

template <class Format>
struct BiasAddition {
  static constexpr const char* kName = "bias_addition";
  static constexpr std::uint32_t kPack = kPackOf<Format>;
  const Stored<Format>* x = nullptr;
  const float* bias = nullptr;
  Stored<Format>* y = nullptr;  // may be x
  Divisor channels;
  std::uint64_t elements = 0;

  // True if all elements of a pack always belong to one place, so that their channels are neighbours.
  VDNN_HOST_DEVICE bool in_packs() const { return channels.value() % kPack == 0; }

  template <std::uint32_t kCount>
  VDNN_HOST_DEVICE void operator()(Pack<kCount> pack) const {
    const Floats<kCount> from = load<Format>(x, pack);
    const Floats<kCount> added = load<Fp32>(bias, Pack<kCount>{channels.remainder(pack.first)});
    store<Format>(y, pack, [&](std::uint32_t i) { return from[i] + added[i]; });
  }
};

template <class Format>
struct BiasTerm {
  static constexpr const char* kName = "bias_gradient";
  using Sum = Sums<1>;
  const Stored<Format>* dy = nullptr;

  VDNN_HOST_DEVICE Sum operator()(std::uint64_t i) const {
    return {{static_cast<double>(widen<Format>(dy[i]))}};
  }
};
template <class Format>
using BiasGradient = ColumnSums<BiasTerm<Format>>;

struct RoundSums {
  static constexpr const char* kName = "round_sums";
  const Sums<1>* sums = nullptr;
  float* rounded = nullptr;
  std::uint64_t elements = 0;

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    rounded[i] = static_cast<float>(sums[i].value[0]);
  }
};

}  // namespace vdnn::cuda
