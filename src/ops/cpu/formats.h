#pragma once
// Element access for our own loops over values of any floating-point type. Elements are widened to fp32 when
// read and rounded when written.

#include <cstddef>
#include <cstdint>

#include "src/ops/formats.h"
#include "src/ops/operand_pointers.h"

namespace vdnn::cpu {

using ops::with_format;

// The elements of an op's operands. Elements are read and written by value, so that an op's reads and writes
// may share memory.
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
