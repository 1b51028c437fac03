#pragma once
// Loops of our own over values of any floating-point type: an element is widened to fp32, computed with, and
// rounded.

#include "src/base/narrow_floats.h"
#include "src/ops/operand_pointers.h"
#include "vdnn/tensor.h"

namespace vdnn::cpu {

// Calls work(Format{}) with the format of `type`, which is one of floating-point numbers.
template <class Work>
auto with_format(DataType type, const Work& work) {
  switch (type) {
    case DataType::kF16:
      return work(Fp16{});
    case DataType::kBf16:
      return work(Bf16{});
    default:
      return work(Fp32{});
  }
}

// The operands of an op, by element. Elements are read and written by value, so that reads and writes may
// share memory.
template <class Format>
struct ReadElements {
  const typename Format::Bits* bits;
  ReadElements(const OpOperands& operands, std::size_t index)
      : bits(ops::read_pointer<typename Format::Bits>(operands, index)) {}
  float operator[](std::uint64_t i) const { return Format::widen(bits[i]); }
};
template <class Format>
struct WriteElements {
  typename Format::Bits* bits;
  WriteElements(const OpOperands& operands, std::size_t index)
      : bits(ops::write_pointer<typename Format::Bits>(operands, index)) {}
  void set(std::uint64_t i, float value) const { bits[i] = Format::narrow(value); }
};

}  // namespace vdnn::cpu
