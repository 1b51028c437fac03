#include "src/ops/product_names.h"

#include <string_view>

namespace vdnn::ops {

namespace {

constexpr std::string_view kInTf32 = " in tf32";

// True for matrix products by cuBLASLt (named in cuda/filter_layers.cpp) or of the classic catalog. Every
// other algorithm that rounds its inputs computes a convolution.
bool is_matrix_product(const std::string& algorithm) {
  return algorithm.starts_with("cublaslt") || algorithm == kTf32MatrixProduct;
}

}  // namespace

std::string in_tf32(const std::string& name) {
  return name + std::string(kInTf32);
}

bool is_in_tf32(const std::string& algorithm) {
  return algorithm.ends_with(kInTf32);
}

std::string without_precision(const std::string& algorithm) {
  return is_in_tf32(algorithm) ? algorithm.substr(0, algorithm.size() - kInTf32.size()) : algorithm;
}

ProductPrecision product_precision(DataType factors, ProductPrecision permitted) {
  switch (factors) {
    case DataType::kF16:
      return ProductPrecision::kFp16;
    case DataType::kBf16:
      return ProductPrecision::kBf16;
    default:
      return permitted;
  }
}

ProductPrecisions recorded_precisions(const std::map<std::string, std::string>& algorithms) {
  ProductPrecisions precisions;
  for (const auto& [op, algorithm] : algorithms) {
    if (is_in_tf32(algorithm)) {
      precisions.convolutions = ProductPrecision::kTf32;
      if (is_matrix_product(algorithm)) {
        precisions.matrix_products = ProductPrecision::kTf32;
      }
    }
  }
  return precisions;
}

std::string source_with(const std::string& name, const ProductPrecisions& precisions) {
  const bool convolutions = precisions.convolutions == ProductPrecision::kTf32;
  const bool matrix_products = precisions.matrix_products == ProductPrecision::kTf32;
  if (convolutions && matrix_products) {
    return name + ", tf32";
  }
  return name + (convolutions ? ", tf32 convolutions" : matrix_products ? ", tf32 matrix products" : "");
}

}  // namespace vdnn::ops
