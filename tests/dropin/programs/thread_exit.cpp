// Resets the GPU by cudaThreadExit(), the function's name before CUDA 4, which CUDA 12 still has. Before and
// after the reset, two streams allocate memory in turns.

#include "program.h"

extern "C" cudaError_t cudaThreadExit();

namespace {

std::uint64_t body() {
  constexpr std::size_t kBytes = 1 << 20;
  for (int round = 0; round < 3; ++round) {
    cudaStream_t streams[2] = {};
    for (cudaStream_t& stream : streams) {
      CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    for (int turn = 0; turn < 4; ++turn) {
      const program::Block block(kBytes, streams[turn % 2]);
      CHECK(cudaMemsetAsync(block.data, turn, kBytes, block.stream));
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaThreadExit());
  }
  return 0;
}

}  // namespace

int main() {
  return program::run(body);
}
