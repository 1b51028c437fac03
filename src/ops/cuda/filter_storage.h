#pragma once
// The storage layouts of filters. A vendor's library computes a transposed convolution as a pass of the
// convolution from its output to its input. So its filters are stored as that convolution needs them: C x
// space x K, where "space" stands for the window's dimensions.

#include <span>

#include "vdnn/op_catalog.h"

namespace vdnn::cuda {

inline constexpr const char* kDense = "dense";  // the logical order: K x space x C
inline constexpr const char* kTransposedFilter = "C x space x K";

// These functions convert between logical and stored order. Both arrays have as many elements as the
// parameter.
void pack(const ParameterRecipe& parameter, std::span<const float> logical, float* stored);
void unpack(const ParameterRecipe& parameter, const float* stored, std::span<float> logical);

}  // namespace vdnn::cuda
