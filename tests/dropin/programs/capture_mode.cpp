// A thread keeps its capture mode, whichever library maps memory for it meanwhile.

#include "program.h"

namespace {

cudaStreamCaptureMode exchanged(cudaStreamCaptureMode mode) {
  CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  return mode;
}

std::uint64_t body() {
  constexpr std::size_t kNewMemory = 1'000'000;
  program::Checksum sum;
  const program::Stream stream;
  std::vector<program::Buffer> kept;  // so that the next buffer needs newly mapped memory
  for (const cudaStreamCaptureMode next : {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed,
                                           cudaStreamCaptureModeGlobal, cudaStreamCaptureModeGlobal}) {
    { const program::Block passing(kNewMemory, stream.handle); }
    kept.emplace_back(4 * kNewMemory);
    const cudaStreamCaptureMode mode = exchanged(next);
    sum.add(&mode, sizeof(mode));
  }
  return sum.value();
}

}  // namespace

int main() {
  return program::run(body);
}
