// Compiled for per-thread default streams, so stream 0 is each thread's own. Threads allocate memory on it
// and hand it to one another with an event. The receiving thread frees it on its own stream.

#include <memory>
#include <mutex>

#include "program.h"

namespace {

using program::Block;

constexpr std::size_t kThreads = 4;
constexpr int kRounds = 40;
constexpr cudaStream_t kOwn = nullptr;

__global__ void scale(float* data, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) {
    data[i] *= 2.0F;
  }
}

// A block that a thread has left for others. The thread that destroys this object frees the block in the
// order of its own stream.
struct Handed {
  explicit Handed(std::unique_ptr<Block> block_) : block(std::move(block_)) {
    CHECK(cudaEventRecord(made.handle, kOwn));
  }
  Handed(const Handed&) = delete;
  Handed& operator=(const Handed&) = delete;
  ~Handed() {
    if (cudaStreamWaitEvent(kOwn, made.handle, 0) != cudaSuccess &&
        cudaEventSynchronize(made.handle) != cudaSuccess) {
      cudaDeviceSynchronize();
    }
  }

  std::unique_ptr<Block> block;
  program::Event made;
};

struct Shared {
  std::mutex mutex;  // guards `left`
  std::vector<std::unique_ptr<Handed>> left;
};

// Leaves `mine` for other threads. Once threads have left several blocks, takes all of them.
std::vector<std::unique_ptr<Handed>> exchange(Shared& shared, std::unique_ptr<Handed> mine) {
  std::vector<std::unique_ptr<Handed>> taken;
  const std::lock_guard lock(shared.mutex);
  if (shared.left.size() > 5) {
    taken.swap(shared.left);
  }
  shared.left.push_back(std::move(mine));
  return taken;
}

// Sums only the thread's own contents, so the result does not depend on the threads' order.
std::uint64_t work(Shared& shared, std::size_t index) {
  std::mt19937_64 random(index);
  program::Checksum sum;
  for (int round = 0; round < kRounds; ++round) {
    const std::size_t bytes = 1'000 + random() % 100'000;
    auto block = std::make_unique<Block>(bytes, kOwn);
    const std::vector<unsigned char> content = program::pattern(bytes / 2, random());
    CHECK(cudaMemsetAsync(block->data, round, bytes, kOwn));
    CHECK(cudaMemcpyAsync(block->data, content.data(), content.size(), cudaMemcpyHostToDevice, kOwn));
    scale<<<1, 128>>>(static_cast<float*>(block->data), 0);
    CHECK(cudaGetLastError());
    std::vector<unsigned char> back(bytes);
    CHECK(cudaMemcpy(back.data(), block->data, bytes, cudaMemcpyDeviceToHost));
    sum.add(back.data(), bytes);
    for (const auto& other : exchange(shared, std::make_unique<Handed>(std::move(block)))) {
      const Block copy(other->block->bytes, kOwn);
      CHECK(cudaStreamWaitEvent(kOwn, other->made.handle, 0));
      CHECK(cudaMemcpyAsync(copy.data, other->block->data, copy.bytes, cudaMemcpyDeviceToDevice, kOwn));
    }
  }
  CHECK(cudaStreamSynchronize(kOwn));
  return sum.value();
}

// Lets the streams of failed threads finish before the program ends.
struct WaitAtEnd {
  ~WaitAtEnd() {
    if (cudaDeviceSynchronize() != cudaSuccess) {
      cudaDeviceSynchronize();
    }
  }
};

std::uint64_t body() {
  const WaitAtEnd wait;
  Shared shared;
  return program::sum_over_threads(kThreads, [&](std::size_t index) { return work(shared, index); });
}

}  // namespace

int main() {
  return program::run(body);
}
