#pragma once
// The cost of a piece of work, apart from any device. A driver converts it to seconds with its own rates;
// only the `sim` driver needs to.

#include <cstdint>

namespace vdnn {

// The kind of arithmetic, on which a device's efficiency depends.
enum class Arithmetic : std::uint8_t {
  kConvolution,
  kMatrixProduct,
  kOther  // element by element, normalisations, pooling: usually limited by memory
};

// The type that a product rounds its factors to before it multiplies them. Sums are fp32.
enum class ProductPrecision : std::uint8_t {
  kFp32,
  kTf32,  // fp32 with ten bits of mantissa: tensor cores from Ampere on
  kFp16,
  kBf16
};

// The precisions of products of fp32 operands, by kind of product.
struct ProductPrecisions {
  ProductPrecision convolutions = ProductPrecision::kFp32;
  ProductPrecision matrix_products = ProductPrecision::kFp32;
  friend bool operator==(const ProductPrecisions&, const ProductPrecisions&) = default;
};

struct Cost {
  double flops = 0;  // floating-point operations; a multiply-add counts as two
  double bytes = 0;  // read from and written to device memory
  Arithmetic arithmetic = Arithmetic::kOther;
  ProductPrecision precision = ProductPrecision::kFp32;  // of convolutions and matrix products
  // Seconds measured on the device, launch included. If positive, they replace the figures above.
  double seconds = 0;
  // `seconds` come from a model instead of a measurement, so the library's order of algorithms is kept.
  bool modelled = false;
};

}  // namespace vdnn
