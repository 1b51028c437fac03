// Frees memory while a stream is captured: in another thread and, where allowed, in the capturing one. Each
// round frees so much that the next round fails unless it reuses the memory.

#include "program.h"

namespace {

constexpr std::size_t kBytes = 12 << 20;

struct Memory {
  Memory() : block(kBytes), pinned(kBytes / 8, 0) {}

  program::Buffer block;
  program::PinnedBuffer pinned;
};

// Frees memory that a stream outside the capture uses. The host has not waited for this use.
void give_back(Memory* memory, cudaStream_t stream) {
  CHECK(cudaMemsetAsync(memory->block.data, 1, kBytes, stream));
  CHECK(cudaFree(std::exchange(memory->block.data, nullptr)));
  CHECK(cudaFreeHost(std::exchange(memory->pinned.data, nullptr)));
}

#if CUDART_VERSION >= 12030
// Captures a second time into the graph of a first capture.
void append_to_graph(cudaStream_t stream) {
  const program::Buffer block(kBytes);
  Memory freed;
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  cudaMemsetAsync(block.data, 1, kBytes, stream);
  CHECK(cudaStreamEndCapture(stream, &graph));
  const cudaError_t begun =
      cudaStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed);
  if (begun == cudaSuccess) {
    cudaMemsetAsync(block.data, 2, kBytes, stream);
    cudaFree(std::exchange(freed.block.data, nullptr));
    cudaGraph_t same = nullptr;
    cudaStreamEndCapture(stream, &same);
  }
  cudaGraphDestroy(graph);
  program::check(begun, "cudaStreamBeginCaptureToGraph");
}
#endif

std::uint64_t round(std::uint64_t seed) {
  constexpr std::size_t kSmall = 10'000;
  const program::Stream stream;
  const program::Stream other;
  const program::Buffer in(kSmall);
  const program::Buffer out(kSmall);
  Memory freed;
  Memory freed_by_thread;
  const program::Graph graph(stream.handle, [&] {
    CHECK(cudaMemcpyAsync(out.data, in.data, kSmall / 2, cudaMemcpyDeviceToDevice, stream.handle));
    program::sum_over_threads(1, [&](std::size_t) {
      give_back(&freed_by_thread, other.handle);
      return std::uint64_t{0};
    });
    auto mode = cudaStreamCaptureModeRelaxed;
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    give_back(&freed, other.handle);
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    CHECK(cudaMemcpyAsync(out.data, in.data, kSmall, cudaMemcpyDeviceToDevice, stream.handle));
  });
#if CUDART_VERSION >= 12030
  append_to_graph(stream.handle);
#endif
  const std::vector<unsigned char> content = program::pattern(kSmall, seed);
  CHECK(cudaMemcpyAsync(in.data, content.data(), kSmall, cudaMemcpyHostToDevice, stream.handle));
  CHECK(cudaGraphLaunch(graph.exec, stream.handle));
  std::vector<unsigned char> back(kSmall);
  CHECK(cudaMemcpyAsync(back.data(), out.data, kSmall, cudaMemcpyDeviceToHost, stream.handle));
  CHECK(cudaStreamSynchronize(stream.handle));
  program::Checksum sum;
  sum.add(back.data(), kSmall);
  return sum.value();
}

std::uint64_t body() {
  std::uint64_t sum = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    sum = 31 * sum + round(seed);
  }
  return sum;
}

}  // namespace

int main() {
  return program::run(body);
}
