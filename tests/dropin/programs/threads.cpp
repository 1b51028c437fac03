// Threads, each with its own stream, hand buffers to one another; the thread that takes a buffer frees it.

#include <mutex>

#include "program.h"

namespace {

using program::Buffer;

constexpr std::size_t kThreads = 4;
constexpr int kRounds = 40;

struct Shared {
  std::mutex mutex;  // guards `left`
  std::vector<Buffer> left;
};

// Sums only the thread's own contents, so the result does not depend on the threads' order.
std::uint64_t work(Shared& shared, std::size_t index) {
  std::mt19937_64 random(index);
  program::Checksum sum;
  const program::Stream stream;
  for (int round = 0; round < kRounds; ++round) {
    const std::size_t bytes = 1'000 + random() % 100'000;
    Buffer buffer(bytes);
    const std::vector<unsigned char> content = program::pattern(bytes / 2, random());
    CHECK(cudaMemsetAsync(buffer.data, round, bytes, stream.handle));
    CHECK(
        cudaMemcpyAsync(buffer.data, content.data(), content.size(), cudaMemcpyHostToDevice, stream.handle));
    std::vector<unsigned char> back(bytes);
    CHECK(cudaMemcpyAsync(back.data(), buffer.data, bytes, cudaMemcpyDeviceToHost, stream.handle));
    CHECK(cudaStreamSynchronize(stream.handle));
    sum.add(back.data(), bytes);
    std::vector<Buffer> taken;
    const std::lock_guard lock(shared.mutex);
    if (shared.left.size() > 5) {
      taken.swap(shared.left);
    }
    shared.left.push_back(std::move(buffer));
  }
  return sum.value();
}

std::uint64_t body() {
  Shared shared;
  return program::sum_over_threads(kThreads, [&](std::size_t index) { return work(shared, index); });
}

}  // namespace

int main() {
  return program::run(body);
}
