#include "src/ops/cuda/filter_storage.h"

#include <algorithm>

namespace vdnn::cuda {

namespace {

// Transposes outer x middle x inner to inner x middle x outer.
void exchange_ends(const float* from, std::size_t outer, std::size_t middle, std::size_t inner, float* to) {
  for (std::size_t o = 0; o < outer; ++o) {
    for (std::size_t m = 0; m < middle; ++m) {
      for (std::size_t i = 0; i < inner; ++i) {
        to[(i * middle + m) * outer + o] = from[(o * middle + m) * inner + i];
      }
    }
  }
}

struct Extents {
  std::size_t filters;
  std::size_t space;
  std::size_t channels;

  explicit Extents(const TensorType& filter)
      : filters(static_cast<std::size_t>(filter.dims[0])),
        space(filter.elements() / static_cast<std::size_t>(filter.dims[0] * filter.dims[1])),
        channels(static_cast<std::size_t>(filter.dims[1])) {}
};

}  // namespace

void pack(const ParameterRecipe& parameter, std::span<const float> logical, float* stored) {
  if (parameter.storage_layout != kTransposedFilter) {
    std::ranges::copy(logical, stored);
    return;
  }
  const Extents extents(parameter.type);
  exchange_ends(logical.data(), extents.filters, extents.space, extents.channels, stored);
}

void unpack(const ParameterRecipe& parameter, const float* stored, std::span<float> logical) {
  if (parameter.storage_layout != kTransposedFilter) {
    std::copy_n(stored, logical.size(), logical.begin());
    return;
  }
  const Extents extents(parameter.type);
  exchange_ends(stored, extents.channels, extents.space, extents.filters, logical.data());
}

}  // namespace vdnn::cuda
