#pragma once
// What a piece of work costs, apart from any device. A driver turns it into seconds with its own rates; only
// the `sim` driver needs to.

#include <cstdint>

namespace vdnn {

// What a device's efficiency depends on.
enum class Arithmetic : std::uint8_t {
  kConvolution,
  kMatrixProduct,
  kOther  // element by element, normalisations, pooling: limited by memory as a rule
};

// The type that a product rounds its factors to before it multiplies them. Sums are fp32.
enum class ProductPrecision : std::uint8_t {
  kFp32,
  kTf32,  // fp32 with ten bits of mantissa: tensor cores from Ampere on
  kFp16,
  kBf16
};

// Of fp32 operands, by kind of product.
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
  // What was measured on the device, launch included; where it is positive, it is taken instead of the
  // figures above.
  double seconds = 0;
  // `seconds` were not measured: they come from a model, and give no reason to leave the library's order of
  // algorithms.
  bool modelled = false;
};

}  // namespace vdnn
