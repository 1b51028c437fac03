#pragma once
// Conversion to another format. A pack is as large as one access to the array with the wider elements.

#include <cstdint>

#include "src/ops/cuda/kernels/packs.h"

namespace vdnn::cuda {

template <class From, class To>
struct Conversion {
  static constexpr const char* kName = "conversion";
  static constexpr std::uint32_t kPack = smaller(kPackOf<From>, kPackOf<To>);
  const Stored<From>* from = nullptr;
  Stored<To>* to = nullptr;
  std::uint64_t elements = 0;

  template <std::uint32_t kCount>
  VDNN_HOST_DEVICE void operator()(Pack<kCount> pack) const {
    store<To>(to, pack, load<From>(from, pack));
  }
};

}  // namespace vdnn::cuda
