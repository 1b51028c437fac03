#pragma once
// Kernels of our own are plain C++: what nvcc compiles for a GPU, g++ compiles for the host, where the same
// bodies run one thread after the other (tests/fakes/emulated_kernels.h) and are held to the references.
//
// A kernel is a struct: its arguments, and what one element or one block of kBlockThreads threads does.
//
// * Elementwise: `elements` and operator()(index); each index by itself.
// * Cooperative: `Shared` (the block's shared memory), `blocks()`, and
//   operator()(block, shared), written in phases: block.each(f) calls f(thread) for every thread of the block
//   and is a barrier. On the device that is one call and __syncthreads(), on the host a loop. So nothing but
//   `shared` and memory lives from phase to phase, what is declared outside of phases is constant and the
//   same for all threads, and all threads come to every phase.
//
// Sums are taken in fixed pieces and by fixed trees, without atomics: the same shape, the same bits. Device
// code is compiled without fused multiply-add, so that host and device agree but for the transcendental
// functions. Indices have 64 bits.

#include <cstdint>

#ifdef __CUDACC__
#define VDNN_HOST_DEVICE __host__ __device__
#else
#define VDNN_HOST_DEVICE
#endif

namespace vdnn::cuda {

inline constexpr std::uint32_t kBlockThreads = 256;

constexpr std::uint64_t divide_up(std::uint64_t value, std::uint64_t by) {
  return value / by + (value % by == 0 ? 0 : 1);
}
constexpr std::uint64_t smaller(std::uint64_t a, std::uint64_t b) {
  return a < b ? a : b;
}

template <class Kernel>
concept Elementwise = requires(const Kernel& kernel, std::uint64_t index) {
  kernel.elements;
  kernel(index);
};

struct NoShared {};
template <class Kernel>
struct SharedOf {
  using Type = typename Kernel::Shared;
};
template <Elementwise Kernel>
struct SharedOf<Kernel> {
  using Type = NoShared;
};

template <class Kernel>
std::uint64_t blocks_of(const Kernel& kernel) {
  if constexpr (Elementwise<Kernel>) {
    // Enough to fill any GPU a few times over; each thread takes every so many-th element.
    constexpr std::uint64_t kMostBlocks = 8192;
    return smaller(divide_up(kernel.elements, kBlockThreads), kMostBlocks);
  } else {
    return kernel.blocks();
  }
}

template <class Kernel, class Block>
VDNN_HOST_DEVICE void run_block(const Kernel& kernel, Block& block, typename SharedOf<Kernel>::Type& shared) {
  if constexpr (Elementwise<Kernel>) {
    block.each([&](std::uint32_t thread) {
      const std::uint64_t stride = block.count() * kBlockThreads;
      for (std::uint64_t i = block.index() * kBlockThreads + thread; i < kernel.elements; i += stride) {
        kernel(i);
      }
    });
  } else {
    kernel(block, shared);
  }
}

}  // namespace vdnn::cuda
