#pragma once
// What a tensor is: data type, shape, layout. Layout, like data type, is a property, not a law.
//
// Shapes are written in logical order. Feature maps: N, C, then space outermost first (H, W or D, H, W);
// filters: K, C, then space (so that KCRS; what is written to disk and hashed is KRSC, see
// `channels_last_order`). `layout` says how the elements lie: channels last (NHWC, NDHWC, KRSC) or channels
// first (NCHW, NCDHW, KCRS). Tensors without space (matrices, vectors) lie as written.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace vdnn {

// How elements are stored. TF32 is none of these: it is a way to multiply fp32 (ProductPrecision in cost.h).
enum class DataType : std::uint8_t { kF32, kI32, kU8, kF16, kBf16 };
enum class Layout : std::uint8_t { kChannelsLast, kChannelsFirst };

// In bytes.
std::uint64_t size_of(DataType type);
// "fp32", "fp16", "bf16", "int32", "uint8".
const char* to_string(DataType type);
// Floating-point numbers?
bool is_floating(DataType type);
// Floating-point numbers of two bytes? Arithmetic on them is done in fp32.
inline bool is_narrow(DataType type) {
  return type == DataType::kF16 || type == DataType::kBf16;
}

using Dims = std::vector<std::int64_t>;

// "64x32x28x28"
std::string to_string(const Dims& dims);
// The product, checked: throws InvalidArgument on overflow of 64 bits or a dimension that is not positive.
std::uint64_t element_count(const Dims& dims);

struct TensorType {
  DataType data_type = DataType::kF32;
  Dims dims;
  Layout layout = Layout::kChannelsLast;

  // Dense; checked.
  std::uint64_t bytes() const;
  std::uint64_t elements() const { return element_count(dims); }
  // Dimensions of space: 2 for NCHW, 3 for NCDHW, 0 for matrices and vectors.
  std::size_t spatial_rank() const { return dims.size() > 2 ? dims.size() - 2 : 0; }
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

}  // namespace vdnn
