#pragma once
// The norm of all gradients together and the scale that clips it. src/ops/cpu/gradient_norm.cpp explains the
// scale for a norm that is not finite.

#include <cmath>
#include <cstdint>

#include "src/ops/cuda/kernels/row_sums.h"

namespace vdnn::cuda {

// Sums of squares of several gradients in one launch. Each block sums a piece of one gradient.
struct SquareSums {
  static constexpr const char* kName = "square_sums";
  static constexpr std::uint32_t kMostGradients = 16;
  using Sum = Sums<1>;
  struct Shared {
    Sum lanes[kBlockThreads];
  };
  struct Gradient {
    const float* values = nullptr;
    std::uint64_t elements = 0;
    std::uint64_t first_block = 0;
  };

  Gradient gradients[kMostGradients];
  std::uint32_t count = 0;  // number of gradients
  std::uint64_t all_blocks = 0;
  Sum* sums = nullptr;  // one per block

  std::uint64_t blocks() const { return all_blocks; }

  template <class Block>
  VDNN_HOST_DEVICE void operator()(Block& block, Shared& shared) const {
    const Gradient gradient = gradients[which(block.index())];
    const std::uint64_t begin = (block.index() - gradient.first_block) * kTermsPerPiece;
    sum_in_block(block, shared.lanes, begin, smaller(begin + kTermsPerPiece, gradient.elements),
                 [&](std::uint64_t i) {
                   const auto value = static_cast<double>(gradient.values[i]);
                   return Sum{{value * value}};
                 });
    block.each([&](std::uint32_t thread) {
      if (thread == 0) {
        sums[block.index()] = shared.lanes[0];
      }
    });
  }

 private:
  VDNN_HOST_DEVICE std::uint32_t which(std::uint64_t block) const {
    std::uint32_t found = 0;
    while (found + 1 < count && gradients[found + 1].first_block <= block) {
      ++found;
    }
    return found;
  }
};

// Stores the norm and the scale. Launched with one element.
struct StoreNorm {
  static constexpr const char* kName = "store_norm";
  const Sums<1>* sum = nullptr;
  double max_norm = 1;
  float* result = nullptr;  // the norm, then the scale
  std::uint64_t elements = 1;

  VDNN_HOST_DEVICE void operator()(std::uint64_t) const {
    const double norm = std::sqrt(sum->value[0]);
    const double scale = max_norm / (norm + 1e-6);
    result[0] = static_cast<float>(norm);
    result[1] = std::isfinite(norm) ? static_cast<float>(scale < 1 ? scale : 1) : NAN;
  }
};

}  // namespace vdnn::cuda
