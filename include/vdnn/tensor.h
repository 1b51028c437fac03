#pragma once
// The type of a tensor: data type, shape and layout.
//
// Shapes are in logical order. Feature maps have N, C, then the spatial dimensions, outermost first (H, W or
// D, H, W). Filters have K, C, then space (KCRS); files and hashes have them in KRSC, see
// `channels_last_order`. `layout` is the order of the elements in memory: channels last (NHWC, NDHWC, KRSC)
// or channels first (NCHW, NCDHW, KCRS). Tensors without space (matrices, vectors) are stored in logical
// order.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace vdnn {

// The stored type of elements. TF32 is not a stored type: it is a way to multiply fp32 (ProductPrecision in
// cost.h).
enum class DataType : std::uint8_t { kF32, kI32, kU8, kF16, kBf16 };
enum class Layout : std::uint8_t { kChannelsLast, kChannelsFirst };

// The size of one element in bytes.
std::uint64_t size_of(DataType type);
// "fp32", "fp16", "bf16", "int32", "uint8".
const char* to_string(DataType type);
// True for floating-point types.
bool is_floating(DataType type);
// True for floating-point types of two bytes. Arithmetic on them is done in fp32.
inline bool is_narrow(DataType type) {
  return type == DataType::kF16 || type == DataType::kBf16;
}

using Dims = std::vector<std::int64_t>;

// "64x32x28x28"
std::string to_string(const Dims& dims);
// The product of the dimensions. Throws InvalidArgument on overflow of 64 bits, or if a dimension is not
// positive.
std::uint64_t element_count(const Dims& dims);

struct TensorType {
  DataType data_type = DataType::kF32;
  Dims dims;
  Layout layout = Layout::kChannelsLast;

  // The size of a dense tensor; throws InvalidArgument on overflow.
  std::uint64_t bytes() const;
  std::uint64_t elements() const { return element_count(dims); }
  // The number of spatial dimensions: 2 for NCHW, 3 for NCDHW, 0 for matrices and vectors.
  std::size_t spatial_rank() const { return dims.size() > 2 ? dims.size() - 2 : 0; }
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

}  // namespace vdnn
