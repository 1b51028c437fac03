// Frees memory of each of two GPUs while the thread's GPU is the other one. Then resets one GPU.

#include "program.h"

namespace {

std::uint64_t use(int gpu, const program::Buffer& buffer, std::uint64_t seed) {
  CHECK(cudaSetDevice(gpu));
  const std::vector<unsigned char> content = program::pattern(buffer.bytes, seed);
  CHECK(cudaMemcpy(buffer.data, content.data(), content.size(), cudaMemcpyHostToDevice));
  std::vector<unsigned char> back(buffer.bytes);
  CHECK(cudaMemcpy(back.data(), buffer.data, back.size(), cudaMemcpyDeviceToHost));
  program::Checksum sum;
  sum.add(back.data(), back.size());
  return sum.value();
}

std::uint64_t body() {
  int gpus = 0;
  CHECK(cudaGetDeviceCount(&gpus));
  std::uint64_t sum = 0;
  for (int round = 0; round < 20; ++round) {
    const int first = round % gpus;
    CHECK(cudaSetDevice(first));
    const program::Buffer here(10'000);
    CHECK(cudaSetDevice(gpus - 1 - first));
    const program::Buffer there(20'000);
    sum = 31 * sum + use(first, here, static_cast<std::uint64_t>(round));
    sum = 31 * sum + use(gpus - 1 - first, there, sum);
    int current = -1;
    CHECK(cudaGetDevice(&current));
    if (current != gpus - 1 - first) {
      throw program::Failure("the thread's GPU has changed");
    }
  }
  CHECK(cudaSetDevice(0));
  void* lost = nullptr;
  CHECK(cudaMalloc(&lost, 30'000));
  CHECK(cudaDeviceReset());
  const program::Buffer after(30'000);
  return 31 * sum + use(0, after, 5);
}

}  // namespace

int main() {
  return program::run(body);
}
