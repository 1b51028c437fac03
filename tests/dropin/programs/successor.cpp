// A thread begins with the GPU, the mode of captures and the last error that CUDA gives to every new thread,
// also where a thread that has ended had others.

#include "program.h"

namespace {

void leave_traces() {
  CHECK(cudaSetDevice(1));
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  if (cudaSetDevice(99) != cudaErrorInvalidDevice) {
    throw program::Failure("a GPU that is not there");
  }
}

void add_state(program::Checksum& sum) {
  int gpu = -1;
  const cudaError_t last = cudaPeekAtLastError();
  CHECK(cudaGetDevice(&gpu));
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  if (last != cudaSuccess || gpu != 0 || mode != cudaStreamCaptureModeGlobal) {
    throw program::Failure("a new thread that has the state of one that has ended");
  }
  sum.add(&gpu, sizeof gpu);
}

std::uint64_t body() {
  std::uint64_t total = 0;
  for (int i = 0; i < 10; ++i) {
    program::sum_over_threads(1, [](std::size_t) {
      leave_traces();
      return 0;
    });
    total += program::sum_over_threads(1, [](std::size_t) {
      program::Checksum sum;
      add_state(sum);
      return sum.value();
    });
  }
  return total;
}

}  // namespace

int main() {
  return program::run(body);
}
