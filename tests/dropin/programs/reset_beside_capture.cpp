// Resets the thread's GPU while the thread captures a stream of another GPU. That capture must go on.

#include "program.h"

namespace {

constexpr std::size_t kBytes = 1 << 20;

std::uint64_t body() {
  CHECK(cudaSetDevice(1));
  const program::Stream there;
  const program::Buffer out(kBytes);
  std::vector<unsigned char> back(kBytes);
  program::Checksum sum;
  for (int round = 1; round <= 4; ++round) {
    CHECK(cudaSetDevice(0));
    program::come_and_go();
    CHECK(cudaStreamBeginCapture(there.handle, cudaStreamCaptureModeRelaxed));
    CHECK(cudaMemsetAsync(out.data, round, kBytes, there.handle));
    CHECK(cudaDeviceReset());
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(there.handle, &graph));
    CHECK(cudaSetDevice(1));
    cudaGraphExec_t launched = nullptr;
    CHECK(cudaGraphInstantiate(&launched, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphLaunch(launched, there.handle));
    CHECK(cudaMemcpyAsync(back.data(), out.data, kBytes, cudaMemcpyDeviceToHost, there.handle));
    CHECK(cudaStreamSynchronize(there.handle));
    sum.add(back.data(), kBytes);
    CHECK(cudaGraphExecDestroy(launched));
  }
  return sum.value();
}

}  // namespace

int main() {
  return program::run(body);
}
