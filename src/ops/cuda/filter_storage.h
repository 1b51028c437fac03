#pragma once
// The stored layouts of filters. For the library, the filters of a transposed convolution are those of the
// convolution from its output to its input. So they are stored in that order: C x space x K.

#include <span>

#include "vdnn/op_catalog.h"

namespace vdnn::cuda {

inline constexpr const char* kDense = "dense";  // as logical: K x space x C
inline constexpr const char* kTransposedFilter = "C x space x K";

// Convert between logical and stored order. Both arrays have as many elements as the parameter.
void pack(const ParameterRecipe& parameter, std::span<const float> logical, float* stored);
void unpack(const ParameterRecipe& parameter, const float* stored, std::span<float> logical);

}  // namespace vdnn::cuda
