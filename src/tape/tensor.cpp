#include "vdnn/tensor.h"

#include "vdnn/size.h"

namespace vdnn {

std::uint64_t size_of(DataType type) {
  switch (type) {
    case DataType::kF32:
    case DataType::kI32:
      return 4;
    case DataType::kF16:
    case DataType::kBf16:
      return 2;
    case DataType::kU8:
      break;
  }
  return 1;
}

const char* to_string(DataType type) {
  switch (type) {
    case DataType::kF32:
      return "fp32";
    case DataType::kF16:
      return "fp16";
    case DataType::kBf16:
      return "bf16";
    case DataType::kI32:
      return "int32";
    case DataType::kU8:
      break;
  }
  return "uint8";
}

bool is_floating(DataType type) {
  return type == DataType::kF32 || is_narrow(type);
}

std::string to_string(const Dims& dims) {
  std::string text;
  for (const std::int64_t dim : dims) {
    text += (text.empty() ? "" : "x") + std::to_string(dim);
  }
  return text;
}

std::uint64_t element_count(const Dims& dims) {
  std::uint64_t count = 1;
  for (const std::int64_t dim : dims) {
    if (dim <= 0) {
      throw InvalidArgument("shape " + to_string(dims) + " has a dimension that is not positive");
    }
    count = checked_multiply(count, static_cast<std::uint64_t>(dim));
  }
  return count;
}

std::uint64_t TensorType::bytes() const {
  return checked_multiply(elements(), size_of(data_type));
}

}  // namespace vdnn
