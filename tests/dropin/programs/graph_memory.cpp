// Two graphs that allocate memory. One graph frees its memory itself; the program frees the memory of the
// other after each launch. Allocations outside the graphs have other addresses.

#include "program.h"

namespace {

constexpr std::size_t kBytes = 100'000;

void copy(void* to, const void* from, cudaStream_t stream) {
  CHECK(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice, stream));
}

std::vector<unsigned char> content_of(const void* data, cudaStream_t stream) {
  std::vector<unsigned char> content(kBytes);
  CHECK(cudaMemcpyAsync(content.data(), data, kBytes, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  return content;
}

// Launches the graph while another block exists, then calls `check()`.
template <class Check>
void launch(const program::Graph& graph, void* in, cudaStream_t stream, std::uint64_t seed,
            program::Checksum& sum, const Check& check) {
  const std::vector<unsigned char> content = program::pattern(kBytes, seed);
  const std::vector<unsigned char> beside = program::pattern(kBytes, seed + 100);
  CHECK(cudaMemcpyAsync(in, content.data(), kBytes, cudaMemcpyHostToDevice, stream));
  const program::Block eager(kBytes, stream);
  CHECK(cudaMemcpyAsync(eager.data, beside.data(), kBytes, cudaMemcpyHostToDevice, stream));
  CHECK(cudaGraphLaunch(graph.exec, stream));
  check(content);
  if (content_of(eager.data, stream) != beside) {
    throw program::Failure("a graph wrote over memory that is not its own");
  }
  sum.add(beside.data(), kBytes);
}

// Memory that a launch has allocated.
struct Launched {
  void* data = nullptr;
  cudaStream_t stream = nullptr;

  ~Launched() { cudaFreeAsync(data, stream); }
};

std::uint64_t body() {
  program::Checksum sum;
  const program::Stream stream;
  const program::Buffer in(kBytes);
  const program::Buffer out(kBytes);
  const auto expect = [&](const void* data, const std::vector<unsigned char>& content) {
    if (content_of(data, stream.handle) != content) {
      throw program::Failure("a graph's result is wrong");
    }
  };
  const program::Graph passing(stream.handle, [&] {
    void* block = nullptr;
    CHECK(cudaMallocAsync(&block, kBytes, stream.handle));
    copy(block, in.data, stream.handle);
    copy(out.data, block, stream.handle);
    CHECK(cudaFreeAsync(block, stream.handle));
  });
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    launch(passing, in.data, stream.handle, seed, sum,
           [&](const auto& content) { expect(out.data, content); });
  }
  void* left = nullptr;
  const program::Graph leaving(stream.handle, [&] {
    CHECK(cudaMallocAsync(&left, kBytes, stream.handle));
    copy(left, in.data, stream.handle);
  });
  for (std::uint64_t seed = 4; seed < 8; ++seed) {
    launch(leaving, in.data, stream.handle, seed, sum, [&](const auto& content) {
      const Launched memory{.data = left, .stream = stream.handle};
      expect(memory.data, content);
    });
  }
  return sum.value();
}

}  // namespace

int main() {
  return program::run(body);
}
