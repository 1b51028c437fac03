#pragma once
// Whole values between fp32 and the type that they are stored in, on the host.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "vdnn/tensor.h"

namespace vdnn {

// Of floating-point numbers of that type; aligned to its size.
std::vector<float> widened(DataType type, std::span<const std::byte> stored);

// `count` fp32 numbers become such of `type`, fp16 or bf16, in place: they take the first half.
void narrow_in_place(DataType type, std::byte* numbers, std::uint64_t count);

}  // namespace vdnn
