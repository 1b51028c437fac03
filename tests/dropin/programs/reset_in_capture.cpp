// Resets the GPU while one of its streams is captured. Afterwards the program starts over on this GPU.

#include "program.h"

namespace {

std::uint64_t body() {
  constexpr std::size_t kBytes = 1 << 20;
  for (int round = 0; round < 4; ++round) {
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    {
      const program::Block block(kBytes, stream);
      CHECK(cudaMemsetAsync(block.data, round, kBytes, stream));
    }
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaDeviceReset());
    program::come_and_go();
  }
  return 0;
}

}  // namespace

int main() {
  return program::run(body);
}
