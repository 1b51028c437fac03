#pragma once
// Dropout. Each pass recomputes the mask from its key (src/ops/dropout_mask.h). A thread computes a pack of
// one sample, with one draw for every two elements.

#include <cstdint>

#include "src/ops/cuda/kernels/divisor.h"
#include "src/ops/cuda/kernels/packs.h"
#include "src/ops/cuda/kernels/per_step.h"
#include "src/ops/dropout_mask.h"

namespace vdnn::cuda {

template <class Format>
struct Dropout {
  static constexpr const char* kName = "dropout";
  static constexpr std::uint32_t kPackElements = kPackOf<Format>;
  const Stored<Format>* x = nullptr;
  Stored<Format>* y = nullptr;
  DropoutSpec spec;
  PerStep<StepScalars> step;
  float scale = 1;
  std::uint64_t sample_elements = 0;
  Divisor sample_packs;        // packs per sample; the last may be shorter
  std::uint64_t elements = 0;  // packs of all samples

  VDNN_HOST_DEVICE void operator()(std::uint64_t i) const {
    const StepScalars& scalars = step.get();
    const std::uint64_t sample = sample_packs.quotient(i);
    const std::uint64_t begin = (i - sample * sample_packs.value()) * kPackElements;
    const ops::DropoutMask mask(spec, scalars, scalars.first_sample + sample);
    bool kept[kPackElements];
    for (std::uint32_t k = 0; k < kPackElements; k += 2) {
      const auto [first, second] = mask.kept((begin + k) / 2);
      kept[k] = first;
      kept[k + 1] = second;
    }
    const std::uint64_t at = sample * sample_elements + begin;
    if (sample_elements % kPackElements == 0) {
      apply(Pack<kPackElements>{at}, kept);
      return;
    }
    for (std::uint32_t k = 0; k < kPackElements; ++k) {
      if (begin + k < sample_elements) {
        apply(Pack<1>{at + k}, kept + k);
      }
    }
  }

 private:
  template <std::uint32_t kCount>
  VDNN_HOST_DEVICE void apply(Pack<kCount> pack, const bool* kept) const {
    const Floats<kCount> from = load<Format>(x, pack);
    store<Format>(y, pack, [&](std::uint32_t k) { return kept[k] ? scale * from[k] : 0.0F; });
  }
};

}  // namespace vdnn::cuda
