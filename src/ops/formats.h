#pragma once
// Maps the type of a value to the format (src/base/narrow_floats.h) for which code is compiled.

#include "src/base/narrow_floats.h"
#include "vdnn/tensor.h"

namespace vdnn::ops {

// Calls work(Format{}) with the format of `type`, a floating-point type.
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

}  // namespace vdnn::ops
