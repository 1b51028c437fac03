#pragma once
// The type in which products are computed, as part of the names of algorithms and of their sources. The name
// of an algorithm that rounds its inputs to TF32 ends in " in tf32", so that a recorded algorithm is never
// mistaken for one that keeps fp32.

#include <map>
#include <string>

#include "vdnn/cost.h"
#include "vdnn/tensor.h"

namespace vdnn::ops {

// Adds the suffix for TF32 to a name in fp32, and removes it.
std::string in_tf32(const std::string& name);
bool is_in_tf32(const std::string& algorithm);
std::string without_precision(const std::string& algorithm);

// The names of a matrix product on a GPU that is not named after a library, in fp32 and in TF32.
inline constexpr const char* kMatrixProduct = "gemm";
inline constexpr const char* kTf32MatrixProduct = "matrix_product in tf32";

// How factors of that type are multiplied: narrow ones directly, fp32 with the permitted precision.
ProductPrecision product_precision(DataType factors, ProductPrecision permitted = ProductPrecision::kFp32);

// The precisions that a training permitted, judged by its recorded algorithms (by names of ops). No option
// permits TF32 for matrix products alone, so a matrix product in TF32 shows that convolutions may use it,
// too.
ProductPrecisions recorded_precisions(const std::map<std::string, std::string>& algorithms);

// "NAME", "NAME, tf32 convolutions", or, with matrix products too, "NAME, tf32".
std::string source_with(const std::string& name, const ProductPrecisions& precisions);

}  // namespace vdnn::ops
