// A new thread has the GPU, the capture mode and the last error with which CUDA begins every thread. An ended
// thread that had changed them has no effect on it.

#include "program.h"

namespace {

void leave_traces() {
  CHECK(cudaSetDevice(1));
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  if (cudaSetDevice(99) != cudaErrorInvalidDevice) {
    throw program::Failure("an absent GPU has been set");
  }
}

void add_state(program::Checksum& sum) {
  int gpu = -1;
  const cudaError_t last = cudaPeekAtLastError();
  CHECK(cudaGetDevice(&gpu));
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  if (last != cudaSuccess || gpu != 0 || mode != cudaStreamCaptureModeGlobal) {
    throw program::Failure("a new thread has the state of an ended one");
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
