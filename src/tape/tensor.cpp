#include "vdnn/tensor.h"

#include "vdnn/size.h"

namespace vdnn {

std::uint64_t size_of(DataType type) {
  return type == DataType::kU8 ? 1 : 4;
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
