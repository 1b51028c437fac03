#pragma once
// In which type products are computed, as the names of algorithms and of their sources tell it. An algorithm
// that rounds its inputs to TF32 ends in " in tf32", so that an algorithm recorded with it is never taken for
// one that keeps fp32.

#include <map>
#include <string>

#include "vdnn/cost.h"
#include "vdnn/tensor.h"

namespace vdnn::ops {

// The name of what computes in TF32 and has this name in fp32, and back.
std::string in_tf32(const std::string& name);
bool is_in_tf32(const std::string& algorithm);
std::string without_precision(const std::string& algorithm);

// A matrix product of a GPU without a library's name, in fp32 and in TF32.
inline constexpr const char* kMatrixProduct = "gemm";
inline constexpr const char* kTf32MatrixProduct = "matrix_product in tf32";

// How factors of that type are multiplied: narrow ones as they are, fp32 as is permitted.
ProductPrecision product_precision(DataType factors, ProductPrecision permitted = ProductPrecision::kFp32);

// Those that a training permitted whose algorithms were recorded, by names of ops. No option permits TF32 to
// matrix products alone: where one of them has it, convolutions might have had it, too.
ProductPrecisions recorded_precisions(const std::map<std::string, std::string>& algorithms);

// "NAME", "NAME, tf32 convolutions", or, with matrix products too, "NAME, tf32".
std::string source_with(const std::string& name, const ProductPrecisions& precisions);

}  // namespace vdnn::ops
