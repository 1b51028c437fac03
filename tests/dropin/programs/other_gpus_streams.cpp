// Allocates in the order of streams of another GPU than the thread's. The memory is on the stream's GPU, and
// is freed in the order of the stream that the free names.

#include "program.h"

namespace {

constexpr std::size_t kBytes = 1 << 20;

class StreamOf : public program::Stream {
 public:
  explicit StreamOf(int gpu) : program::Stream((check(cudaSetDevice(gpu)), cudaStreamNonBlocking)) {}

 private:
  static void check(cudaError_t error) { program::check(error, "cudaSetDevice"); }
};

void expect_on(int gpu, const void* data) {
  cudaPointerAttributes attributes{};
  CHECK(cudaPointerGetAttributes(&attributes, data));
  if (attributes.device != gpu) {
    throw program::Failure("memory is on another GPU than its stream");
  }
}

std::uint64_t body() {
  const StreamOf here(0);
  const StreamOf there(1);
  const program::PinnedBuffer pinned(kBytes, 0);
  std::vector<unsigned char> back(kBytes);
  program::Checksum sum;
  for (int round = 0; round < 8; ++round) {
    CHECK(cudaSetDevice(0));
    void* block = nullptr;
    CHECK(cudaMallocAsync(&block, kBytes, there.handle));
    expect_on(1, block);
    CHECK(cudaSetDevice(1));
    CHECK(cudaMemsetAsync(block, round, kBytes, there.handle));
    CHECK(cudaStreamSynchronize(there.handle));
    // The first GPU is the last to use the memory, on a stream with a handle or on the thread's default
    // stream.
    CHECK(cudaSetDevice(0));
    const cudaStream_t last = round % 2 == 0 ? here.handle : nullptr;
    CHECK(cudaMemcpyAsync(pinned.data, block, kBytes, cudaMemcpyDeviceToHost, last));
    CHECK(cudaFreeAsync(block, last));
    {
      CHECK(cudaSetDevice(1));
      const program::Block next(kBytes, there.handle);
      CHECK(cudaMemsetAsync(next.data, 255, kBytes, there.handle));
    }
    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamSynchronize(last));
    sum.add(pinned.data, kBytes);
  }
  return sum.value();
}

}  // namespace

int main() {
  return program::run(body);
}
