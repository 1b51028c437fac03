// Memory of one GPU that the other GPU's work reads and writes.

#include "program.h"

namespace {

constexpr std::size_t kBytes = 300'000;

void let_each_other_in() {
  for (const int gpu : {0, 1}) {
    int can = 0;
    CHECK(cudaDeviceCanAccessPeer(&can, gpu, 1 - gpu));
    CHECK(cudaSetDevice(gpu));
    if (can != 0) {
      CHECK(cudaDeviceEnablePeerAccess(1 - gpu, 0));
    }
  }
}

// Copies from the first GPU to the other and back, on a stream of the second GPU.
std::uint64_t body() {
  let_each_other_in();
  program::Checksum sum;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const std::vector<unsigned char> content = program::pattern(kBytes, seed);
    CHECK(cudaSetDevice(0));
    const program::Buffer here(kBytes);
    const program::Buffer back(kBytes);
    CHECK(cudaMemcpy(here.data, content.data(), kBytes, cudaMemcpyHostToDevice));
    CHECK(cudaSetDevice(1));
    const program::Stream stream;
    const program::Buffer there(kBytes);
    CHECK(cudaMemcpyAsync(there.data, here.data, kBytes, cudaMemcpyDeviceToDevice, stream.handle));
    CHECK(cudaMemcpyAsync(back.data, there.data, kBytes, cudaMemcpyDeviceToDevice, stream.handle));
    CHECK(cudaStreamSynchronize(stream.handle));
    CHECK(cudaSetDevice(0));
    std::vector<unsigned char> read(kBytes);
    CHECK(cudaMemcpy(read.data(), back.data, kBytes, cudaMemcpyDeviceToHost));
    sum.add(read.data(), kBytes);
  }
  return sum.value();
}

}  // namespace

int main() {
  return program::run(body);
}
