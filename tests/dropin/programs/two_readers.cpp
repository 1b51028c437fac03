// Frees page-locked memory that a GPU still reads, while the thread's GPU is another one.

#include "program.h"

namespace {

constexpr std::size_t kBytes = 50'000;
constexpr std::uint64_t kRounds = 20;

std::uint64_t body() {
  int gpus = 0;
  CHECK(cudaGetDeviceCount(&gpus));
  CHECK(cudaSetDevice(gpus - 1));
  const program::Stream reader;
  std::vector<program::Buffer> copies;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    copies.emplace_back(kBytes);
  }
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    CHECK(cudaSetDevice(0));
    const program::PinnedBuffer host(kBytes, cudaHostAllocPortable);
    const std::vector<unsigned char> content = program::pattern(kBytes, round);
    std::memcpy(host.data, content.data(), kBytes);
    CHECK(cudaSetDevice(gpus - 1));
    CHECK(cudaMemcpyAsync(copies[round].data, host.data, kBytes, cudaMemcpyHostToDevice, reader.handle));
    CHECK(cudaSetDevice(0));
  }
  program::Checksum sum;
  CHECK(cudaSetDevice(gpus - 1));
  for (const program::Buffer& copy : copies) {
    std::vector<unsigned char> back(kBytes);
    CHECK(cudaMemcpy(back.data(), copy.data, kBytes, cudaMemcpyDeviceToHost));
    sum.add(back.data(), kBytes);
  }
  return sum.value();
}

}  // namespace

int main() {
  return program::run(body);
}
