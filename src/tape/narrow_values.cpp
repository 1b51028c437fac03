#include "src/tape/narrow_values.h"

#include <cstring>

#include "src/base/narrow_floats.h"

namespace vdnn {

namespace {

template <class Format>
std::vector<float> widened_as(std::span<const std::byte> stored) {
  using Bits = typename Format::Bits;
  std::vector<float> numbers(stored.size() / sizeof(Bits));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    Bits bits = 0;
    std::memcpy(&bits, stored.data() + i * sizeof(Bits), sizeof(Bits));
    numbers[i] = Format::widen(bits);
  }
  return numbers;
}

// Works in place: narrow numbers are shorter, so each number is read before its bytes are overwritten.
template <class Format>
void narrow_as(std::byte* numbers, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    float wide = 0;
    std::memcpy(&wide, numbers + i * sizeof(float), sizeof(float));
    const typename Format::Bits bits = Format::narrow(wide);
    std::memcpy(numbers + i * sizeof(bits), &bits, sizeof(bits));
  }
}

}  // namespace

std::vector<float> widened(DataType type, std::span<const std::byte> stored) {
  switch (type) {
    case DataType::kF16:
      return widened_as<Fp16>(stored);
    case DataType::kBf16:
      return widened_as<Bf16>(stored);
    default:
      return widened_as<Fp32>(stored);
  }
}

void narrow_in_place(DataType type, std::byte* numbers, std::uint64_t count) {
  if (type == DataType::kBf16) {
    narrow_as<Bf16>(numbers, count);
  } else {
    narrow_as<Fp16>(numbers, count);
  }
}

}  // namespace vdnn
