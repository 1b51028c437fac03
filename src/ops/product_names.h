#pragma once
// The type in which products are computed, as part of the names of algorithms and of their sources. The name
// of an algorithm that rounds its inputs to TF32 ends in " in tf32", so that a recorded algorithm is never
// mistaken for an algorithm that keeps fp32.

#include <map>
#include <string>

#include "vdnn/cost.h"
#include "vdnn/tensor.h"

namespace vdnn::ops {

// These functions add the suffix for TF32 to a name, check for the suffix, and remove it.
std::string in_tf32(const std::string& name);
bool is_in_tf32(const std::string& algorithm);
std::string without_precision(const std::string& algorithm);

// The names of a matrix product, in fp32 and in TF32, on a simulated GPU without a vendor's library.
inline constexpr const char* kMatrixProduct = "gemm";
inline constexpr const char* kTf32MatrixProduct = "matrix_product in tf32";

// The precision in which factors of that type are multiplied: the factors' own type if they are narrow, the
// permitted precision for fp32.
ProductPrecision product_precision(DataType factors, ProductPrecision permitted = ProductPrecision::kFp32);

// The precisions that a training run permitted, derived from the algorithms that it recorded for its ops. No
// option permits TF32 only for matrix products, so a matrix product in TF32 implies that convolutions may
// also use TF32.
ProductPrecisions recorded_precisions(const std::map<std::string, std::string>& algorithms);

// Returns "NAME", or "NAME, tf32 convolutions", or "NAME, tf32" if matrix products may also use TF32.
std::string source_with(const std::string& name, const ProductPrecisions& precisions);

}  // namespace vdnn::ops
