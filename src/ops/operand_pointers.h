#pragma once
// The operands of a running op as arrays.

#include <cstddef>

#include "vdnn/address_range.h"
#include "vdnn/op_operands.h"

namespace vdnn::ops {

template <class T>
const T* read_pointer(const OpOperands& operands, std::size_t index) {
  return pointer_to<const T>(operands.reads[index].begin);
}

template <class T>
T* write_pointer(const OpOperands& operands, std::size_t index) {
  return pointer_to<T>(operands.writes[index].begin);
}

}  // namespace vdnn::ops
