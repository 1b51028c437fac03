// Requests more memory than there is, in the order of a stream that is not captured. This must not disturb
// the capture of another stream, and must set the last error.

#include "program.h"

namespace {

std::uint64_t body() {
  constexpr std::size_t kBytes = 10'000;
  const program::Stream captured;
  const program::Stream other;
  const program::Buffer buffer(kBytes);
  for (const cudaStreamCaptureMode mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
    CHECK(cudaStreamBeginCapture(captured.handle, mode));
    CHECK(cudaMemsetAsync(buffer.data, 1, kBytes, captured.handle));
    void* block = nullptr;
    if (cudaMallocAsync(&block, std::size_t{1} << 40, other.handle) != cudaErrorMemoryAllocation ||
        cudaGetLastError() != cudaErrorMemoryAllocation) {
      throw program::Failure("a request for 1 TiB has not failed");
    }
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(captured.handle, &graph));
    CHECK(cudaGraphDestroy(graph));
  }
  return 0;
}

}  // namespace

int main() {
  return program::run(body);
}
