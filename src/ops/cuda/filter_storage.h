#pragma once
// How filters lie. Those of a transposed convolution are, to the library, filters of the convolution from its
// output to its input, so they are stored as those are: C x space x K.

#include <span>
#include <string_view>

#include "vdnn/op_catalog.h"

namespace vdnn::cuda {

inline constexpr const char* kDense = "dense";  // as logical: K x space x C
inline constexpr const char* kTransposedFilter = "C x space x K";

// Between logical and stored order, both of the parameter's elements.
void pack(const ParameterRecipe& parameter, std::span<const float> logical, float* stored);
void unpack(const ParameterRecipe& parameter, const float* stored, std::span<float> logical);

}  // namespace vdnn::cuda
