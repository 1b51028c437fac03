#pragma once
// Elements in memory (fp32, fp16 or bf16: src/base/narrow_floats.h) and in computations (fp32). A thread
// reads and writes a pack of neighbours by accesses of 16 bytes, the widest that a GPU has. Memory bandwidth
// limits elementwise kernels, and narrower accesses do not use all of it. So every array of a packed kernel
// must begin at a multiple of 16 bytes; devices align blocks to 256 or more. An array at another address is
// an error on GPU and host.
//
// Results are rounded to the nearest, ties to even. The host converts by integer code, which would be too
// slow on a GPU. A GPU converts by its own instructions (CUDA Math API, __float2half_rn, __float2bfloat16_rn
// and their inverses; emulated if an architecture lacks them). Widening is exact, and the nearest-even
// rounding of a number is unique, so host and GPU produce the same bits. Only NaNs may differ.

#include <cstdint>
#include <type_traits>

#include "src/base/narrow_floats.h"
#include "src/ops/cuda/kernels/kernel.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
#include <stdexcept>
#endif

namespace vdnn::cuda {

template <class Format>
using Stored = typename Format::Bits;

template <class Format>
VDNN_HOST_DEVICE float widen(Stored<Format> bits) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<Format, Fp16>) {
    return __half2float(__ushort_as_half(bits));
  } else if constexpr (std::is_same_v<Format, Bf16>) {
    return __bfloat162float(__ushort_as_bfloat16(bits));
  } else {
    return bits;
  }
#else
  return Format::widen(bits);
#endif
}

template <class Format>
VDNN_HOST_DEVICE Stored<Format> narrow(float value) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<Format, Fp16>) {
    return __half_as_ushort(__float2half_rn(value));
  } else if constexpr (std::is_same_v<Format, Bf16>) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
  } else {
    return value;
  }
#else
  return Format::narrow(value);
#endif
}

inline constexpr std::uint32_t kWordBytes = 16;

// The pack of a kernel whose widest elements have this format.
template <class Format>
inline constexpr std::uint32_t kPackOf = kWordBytes / sizeof(Stored<Format>);

// The elements of a pack in fp32.
template <std::uint32_t kCount>
struct Floats {
  float value[kCount] = {};

  VDNN_HOST_DEVICE float operator[](std::uint32_t i) const { return value[i]; }
  VDNN_HOST_DEVICE float& operator[](std::uint32_t i) { return value[i]; }
  VDNN_HOST_DEVICE float operator()(std::uint32_t i) const { return value[i]; }  // for store()
};

// The bytes of one access.
template <class Bits, std::uint32_t kCount>
struct [[gnu::may_alias]] alignas(sizeof(Bits) * kCount) Word {
  Bits bits[kCount];
};

template <class Bits, std::uint32_t kCount>
using WordOf = Word<Bits, smaller(kCount, kWordBytes / sizeof(Bits))>;

template <class WordType, class Bits>
VDNN_HOST_DEVICE WordType* word_at(Bits* element) {
#ifndef __CUDA_ARCH__
  if (reinterpret_cast<std::uintptr_t>(element) % alignof(WordType) != 0) {
    throw std::logic_error("a kernel accesses a pack that is not aligned to its size");
  }
#endif
  return reinterpret_cast<WordType*>(element);
}

template <class Format, std::uint32_t kCount>
VDNN_HOST_DEVICE Floats<kCount> load(const Stored<Format>* array, Pack<kCount> pack) {
  using Each = WordOf<Stored<Format>, kCount>;
  constexpr std::uint32_t kEach = sizeof(Each) / sizeof(Stored<Format>);
  Floats<kCount> values;
  for (std::uint32_t begin = 0; begin < kCount; begin += kEach) {
    const Each each = *word_at<const Each>(array + pack.first + begin);
    for (std::uint32_t i = 0; i < kEach; ++i) {
      values[begin + i] = widen<Format>(each.bits[i]);
    }
  }
  return values;
}

// Stores a pack; value(i) is the value of its element i.
template <class Format, std::uint32_t kCount, class Value>
VDNN_HOST_DEVICE void store(Stored<Format>* array, Pack<kCount> pack, const Value& value) {
  using Each = WordOf<Stored<Format>, kCount>;
  constexpr std::uint32_t kEach = sizeof(Each) / sizeof(Stored<Format>);
  for (std::uint32_t begin = 0; begin < kCount; begin += kEach) {
    Each each;
    for (std::uint32_t i = 0; i < kEach; ++i) {
      each.bits[i] = narrow<Format>(value(begin + i));
    }
    *word_at<Each>(array + pack.first + begin) = each;
  }
}

}  // namespace vdnn::cuda
