#pragma once
// Converts whole values between fp32 and the type in which they are stored, on the host.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "vdnn/tensor.h"

namespace vdnn {

// Converts stored numbers of the floating-point type `type` to fp32. `stored` need not be aligned.
std::vector<float> widened(DataType type, std::span<const std::byte> stored);

// Converts `count` fp32 numbers to `type`, fp16 or bf16, in place: the result is the first half of the bytes.
void narrow_in_place(DataType type, std::byte* numbers, std::uint64_t count);

}  // namespace vdnn
