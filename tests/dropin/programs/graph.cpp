// Captures a step once and launches it repeatedly, with allocations and frees beside it.

#include "program.h"

namespace {

std::uint64_t body() {
  constexpr std::size_t kBytes = 100'000;
  program::Checksum sum;
  const program::Stream stream;
  const program::Stream other;
  const program::Event forked;
  const program::Event joined;
  const program::Buffer in(kBytes);
  const program::Buffer between(kBytes);
  const program::Buffer out(kBytes);
  const program::Graph graph(stream.handle, [&] {
    CHECK(cudaMemcpyAsync(between.data, in.data, kBytes, cudaMemcpyDeviceToDevice, stream.handle));
    CHECK(cudaEventRecord(forked.handle, stream.handle));
    CHECK(cudaStreamWaitEvent(other.handle, forked.handle, 0));
    CHECK(cudaMemcpyAsync(out.data, between.data, kBytes / 2, cudaMemcpyDeviceToDevice, other.handle));
    CHECK(cudaEventRecord(joined.handle, other.handle));
    CHECK(cudaStreamWaitEvent(stream.handle, joined.handle, 0));
    CHECK(cudaMemsetAsync(between.data, 7, kBytes / 4, stream.handle));
  });
  for (int launch = 0; launch < 6; ++launch) {
    const std::vector<unsigned char> content = program::pattern(kBytes, static_cast<std::uint64_t>(launch));
    {
      const program::Block passing(3 * kBytes, stream.handle);
      CHECK(cudaMemcpyAsync(passing.data, content.data(), kBytes, cudaMemcpyHostToDevice, stream.handle));
      CHECK(cudaMemcpyAsync(in.data, passing.data, kBytes, cudaMemcpyDeviceToDevice, stream.handle));
    }
    CHECK(cudaMemsetAsync(out.data, 0, kBytes, stream.handle));
    CHECK(cudaGraphLaunch(graph.exec, stream.handle));
    std::vector<unsigned char> back(kBytes);
    for (const program::Buffer* const buffer : {&between, &out}) {
      CHECK(cudaMemcpyAsync(back.data(), buffer->data, kBytes, cudaMemcpyDeviceToHost, stream.handle));
      CHECK(cudaStreamSynchronize(stream.handle));
      sum.add(back.data(), kBytes);
    }
  }
  return sum.value();
}

}  // namespace

int main() {
  return program::run(body);
}
