#pragma once
// The type in which products are computed, as part of the names of algorithms and of their sources. The name
// of an algorithm that rounds its inputs to TF32 ends in " in tf32", so that a recorded algorithm is never
// mistaken for one that keeps fp32.

#include <map>
#include <string>

#include "vdnn/cost.h"
#include "vdnn/tensor.h"

namespace vdnn::ops {

// Add the suffix for TF32 to a name, check for it, and remove it.
std::string in_tf32(const std::string& name);
bool is_in_tf32(const std::string& algorithm);
std::string without_precision(const std::string& algorithm);

// The names of a matrix product, in fp32 and in TF32, on a GPU whose algorithms have no library's names.
inline constexpr const char* kMatrixProduct = "gemm";
inline constexpr const char* kTf32MatrixProduct = "matrix_product in tf32";

// The precision in which factors of that type are multiplied: their own for narrow ones, the permitted one
// for fp32.
ProductPrecision product_precision(DataType factors, ProductPrecision permitted = ProductPrecision::kFp32);

// The precisions that a training permitted, derived from its recorded algorithms (by names of ops). No option
// permits TF32 only for matrix products, so a matrix product in TF32 implies that convolutions may also use
// TF32.
ProductPrecisions recorded_precisions(const std::map<std::string, std::string>& algorithms);

// Returns "NAME", "NAME, tf32 convolutions" or, with matrix products in TF32, too, "NAME, tf32".
std::string source_with(const std::string& name, const ProductPrecisions& precisions);

}  // namespace vdnn::ops
