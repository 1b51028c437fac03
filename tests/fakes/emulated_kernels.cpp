#include "tests/fakes/emulated_kernels.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "src/ops/cuda/cuda_ops.h"
#include "tests/fakes/fake_vendor_library.h"
#include "vdnn/error.h"

namespace vdnn::testing {

namespace {

// The numbers from 0 in the order in which blocks or threads run.
class Order {
 public:
  Order(std::uint64_t count, ThreadOrder order, std::mt19937& engine)
      : random_(order == ThreadOrder::kRandom), engine_(engine), numbers_(count) {
    std::iota(numbers_.begin(), numbers_.end(), 0U);
    if (order == ThreadOrder::kReversed) {
      std::ranges::reverse(numbers_);
    }
  }

  const std::vector<std::uint32_t>& next() {
    if (random_) {
      std::ranges::shuffle(numbers_, engine_);
    }
    return numbers_;
  }

 private:
  bool random_;
  std::mt19937& engine_;
  std::vector<std::uint32_t> numbers_;
};

class HostBlock {
 public:
  HostBlock(std::uint64_t index, std::uint64_t count, Order& threads)
      : index_(index), count_(count), threads_(threads) {}

  std::uint64_t index() const { return index_; }
  std::uint64_t count() const { return count_; }

  template <class Phase>
  void each(const Phase& phase) {
    for (const std::uint32_t thread : threads_.next()) {
      phase(thread);
    }
  }

 private:
  std::uint64_t index_;
  std::uint64_t count_;
  Order& threads_;
};

// If blocks divide the elements between them, uses few blocks, so that each thread processes several
// elements.
template <class Known>
std::uint64_t grid_of(const Known& kernel) {
  constexpr std::uint64_t kElementwiseBlocks = 3;
  const std::uint64_t blocks = cuda::blocks_of(kernel);
  if (blocks == 0) {
    throw InvalidArgument(std::string("kernel ") + Known::kName + " over no blocks");
  }
  return cuda::Elementwise<Known> ? std::min(blocks, kElementwiseBlocks) : blocks;
}

class EmulatedKernels final : public cuda::KernelTable {
 public:
  EmulatedKernels(ThreadOrder order, std::uint32_t seed, HostLaunch launch)
      : order_(order), seed_(seed), launch_(std::move(launch)) {}

  void launch(const cuda::Kernel& kernel, void* stream) const override {
    std::visit(
        [&](const auto& known) {
          launch_(stream, [known, blocks = grid_of(known), order = order_, seed = seed_] {
            run(known, blocks, order, seed);
          });
        },
        kernel);
  }

 private:
  template <class Known>
  static void run(const Known& kernel, std::uint64_t count, ThreadOrder order, std::uint32_t seed) {
    using Shared = typename cuda::SharedOf<Known>::Type;
    std::mt19937 engine(seed);
    Order blocks(count, order, engine);
    Order threads(cuda::kBlockThreads, order, engine);
    alignas(Shared) std::array<std::byte, sizeof(Shared)> shared{};
    for (const std::uint32_t index : blocks.next()) {
      shared.fill(std::byte{0xFF});
      HostBlock block(index, count, threads);
      cuda::run_block(kernel, block, *reinterpret_cast<Shared*>(shared.data()));
    }
  }

  ThreadOrder order_;
  std::uint32_t seed_;
  HostLaunch launch_;
};

}  // namespace

std::unique_ptr<const cuda::KernelTable> make_emulated_kernels(ThreadOrder order, std::uint32_t seed,
                                                               HostLaunch launch) {
  return std::make_unique<EmulatedKernels>(order, seed, std::move(launch));
}

cuda::Backends make_emulated_backends(ThreadOrder order, const HostLaunch& launch) {
  return {.kernels = make_emulated_kernels(order, 1, launch),
          .vendor = std::make_shared<FakeVendorLibrary>(launch),
          .engines = make_fake_engines(),
          .cudnn = "9.19.0",
          .cudnn_frontend = "1.23.0"};
}

std::unique_ptr<OpLibrary> make_emulated_cuda_ops(ThreadOrder order, const HostLaunch& launch) {
  return cuda::make_cuda_ops(make_emulated_backends(order, launch));
}

}  // namespace vdnn::testing
