// A request in the order of a stream that is not captured, for more memory than there is, leaves the capture
// of another one as it is. The error is the last one, too.

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
      throw program::Failure("there is too much memory");
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
