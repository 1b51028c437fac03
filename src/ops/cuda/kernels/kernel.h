#pragma once
// Our own kernels are plain C++. nvcc compiles them for a GPU, g++ for the host. On the host, the same bodies
// run one thread after the other (tests/fakes/emulated_kernels.h), and tests compare them with the
// references.
//
// A kernel is a struct with its arguments, and with the code for one element or for one block of
// kBlockThreads threads.
//
// * Elementwise: `elements` and operator()(index); each index is computed independently.
// * Packed: elementwise over arrays, several elements at once (packs.h): `elements`, kPack, and
//   operator()(Pack<kCount>) for a pack of kPack elements and for one element. in_packs() returns false if
//   packs cannot be used. If the kernel has a type `Shared`, one thread of each block first calls
//   prepare(shared), and operator() gets `shared`, too.
// * Cooperative: `Shared` (the block's shared memory), `blocks()`, and operator()(block, shared), written in
//   phases: block.each(f) calls f(thread) for every thread of the block and is a barrier. On the device
//   each() is one call and __syncthreads(), on the host a loop. So only `shared` and global memory keep
//   their contents between phases. Variables outside of phases must be constant and the same for all threads,
//   and all threads must reach every phase.
//
// Sums use fixed pieces and fixed trees, without atomics, so that the same shape leads to the same bits.
// Device code is compiled without fused multiply-add, so that host and device agree except for transcendental
// functions. Indices have 64 bits.

#include <cstdint>

#include "src/base/host_device.h"

namespace vdnn::cuda {

inline constexpr std::uint32_t kBlockThreads = 256;

constexpr std::uint64_t divide_up(std::uint64_t value, std::uint64_t by) {
  return value / by + (value % by == 0 ? 0 : 1);
}
constexpr std::uint64_t smaller(std::uint64_t a, std::uint64_t b) {
  return a < b ? a : b;
}

// Neighbouring elements of arrays that one thread computes at once.
template <std::uint32_t kCount>
struct Pack {
  std::uint64_t first = 0;
};

template <class Kernel>
concept Elementwise = requires(const Kernel& kernel, std::uint64_t index) {
  kernel.elements;
  kernel(index);
};

template <class Kernel>
concept Packed = requires(const Kernel& kernel) {
  kernel.elements;
  Kernel::kPack;
};

struct NoShared {};
template <class Kernel>
struct SharedOf {
  using Type = NoShared;
};
template <class Kernel>
requires requires {
  typename Kernel::Shared;
}
struct SharedOf<Kernel> {
  using Type = typename Kernel::Shared;
};

// The number of whole packs; the remaining elements are computed one by one.
template <Packed Kernel>
VDNN_HOST_DEVICE std::uint64_t packs_of(const Kernel& kernel) {
  if constexpr (requires { kernel.in_packs(); }) {
    if (!kernel.in_packs()) {
      return 0;
    }
  }
  return kernel.elements / Kernel::kPack;
}

// The number of blocks for one thread per piece of work, up to a number that fills any GPU a few times. With
// more work, threads loop over it with a stride.
constexpr std::uint64_t blocks_for(std::uint64_t threads) {
  constexpr std::uint64_t kMostBlocks = 8192;
  return smaller(divide_up(threads, kBlockThreads), kMostBlocks);
}

template <class Kernel>
std::uint64_t blocks_of(const Kernel& kernel) {
  if constexpr (Packed<Kernel>) {
    const std::uint64_t packs = packs_of(kernel);
    const std::uint64_t rest = kernel.elements - packs * Kernel::kPack;
    return blocks_for(packs > rest ? packs : rest);
  } else if constexpr (Elementwise<Kernel>) {
    return blocks_for(kernel.elements);
  } else {
    return kernel.blocks();
  }
}

// Calls take(i) for every i in [0, count), distributed over the threads of all blocks.
template <class Block, class Take>
VDNN_HOST_DEVICE void take_turns(const Block& block, std::uint32_t thread, std::uint64_t count,
                                 const Take& take) {
  const std::uint64_t stride = block.count() * kBlockThreads;
  for (std::uint64_t i = block.index() * kBlockThreads + thread; i < count; i += stride) {
    take(i);
  }
}

template <Packed Kernel, class Block>
VDNN_HOST_DEVICE void run_packs(const Kernel& kernel, Block& block, typename SharedOf<Kernel>::Type& shared) {
  constexpr bool kPrepared = requires {
    kernel.prepare(shared);
  };
  const auto take = [&](auto pack) {
    if constexpr (kPrepared) {
      kernel(pack, shared);
    } else {
      kernel(pack);
    }
  };
  if constexpr (kPrepared) {
    block.each([&](std::uint32_t thread) {
      if (thread == 0) {
        kernel.prepare(shared);
      }
    });
  }
  block.each([&](std::uint32_t thread) {
    const std::uint64_t packs = packs_of(kernel);
    const std::uint64_t begin_of_rest = packs * Kernel::kPack;
    take_turns(block, thread, packs, [&](std::uint64_t i) { take(Pack<Kernel::kPack>{i * Kernel::kPack}); });
    take_turns(block, thread, kernel.elements - begin_of_rest,
               [&](std::uint64_t i) { take(Pack<1>{begin_of_rest + i}); });
  });
}

template <class Kernel, class Block>
VDNN_HOST_DEVICE void run_block(const Kernel& kernel, Block& block, typename SharedOf<Kernel>::Type& shared) {
  if constexpr (Packed<Kernel>) {
    run_packs(kernel, block, shared);
  } else if constexpr (Elementwise<Kernel>) {
    block.each([&](std::uint32_t thread) { take_turns(block, thread, kernel.elements, kernel); });
  } else {
    kernel(block, shared);
  }
}

}  // namespace vdnn::cuda
