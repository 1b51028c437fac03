// Allocates memory until there is none, frees some and goes on. The memory reported as free must be
// available.

#include "program.h"

namespace {

using program::Buffer;

constexpr std::size_t kBytes = 6 << 20;

std::size_t free_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  CHECK(cudaMemGetInfo(&free, &total));
  return free;
}

void require(bool holds, const char* what) {
  if (!holds) {
    throw program::Failure(what);
  }
}

// Allocates until no memory is left; any other error ends the program.
void fill(std::vector<Buffer>& live) {
  while (true) {
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, kBytes);
    if (error == cudaErrorMemoryAllocation) {
      require(cudaGetLastError() == cudaErrorMemoryAllocation, "the last error is not that of cudaMalloc");
      require(cudaGetLastError() == cudaSuccess, "reading the last error does not clear it");
      return;
    }
    program::check(error, "cudaMalloc");
    CHECK(cudaFree(data));
    live.emplace_back(kBytes);
  }
}

std::uint64_t body() {
  program::Checksum sum;
  const std::size_t all = free_bytes();
  for (int round = 0; round < 4; ++round) {
    std::vector<Buffer> live;
    fill(live);
    require(free_bytes() < kBytes, "memory reported as free cannot be allocated");
    require(live.size() >= all / kBytes - 1, "memory that was free cannot be allocated");
    for (std::size_t freed = 0; freed < 3; ++freed) {
      live.pop_back();
    }
    require(free_bytes() >= 3 * kBytes, "freed memory is not reported as free");
    const Buffer large(3 * kBytes);
    const std::vector<unsigned char> content = program::pattern(100'000, static_cast<std::uint64_t>(round));
    CHECK(cudaMemset(large.data, round, large.bytes));
    CHECK(cudaMemcpy(large.data, content.data(), content.size(), cudaMemcpyHostToDevice));
    std::vector<unsigned char> back(2 * content.size());
    CHECK(cudaMemcpy(back.data(), large.data, back.size(), cudaMemcpyDeviceToHost));
    sum.add(back.data(), back.size());
  }
  require(free_bytes() == all, "not as much memory is reported as free as at first");
  return sum.value();
}

}  // namespace

int main() {
  return program::run(body);
}
