// Misuses CUDA. Two streams write to a buffer without order between them. One block is freed twice, and
// another block is never freed.

#include "program.h"

namespace {

std::uint64_t body() {
  const program::Stream first;
  const program::Stream second;
  const program::Buffer shared(1000);
  CHECK(cudaMemsetAsync(shared.data, 1, 1000, first.handle));
  CHECK(cudaMemsetAsync(shared.data, 2, 1000, second.handle));
  void* twice = nullptr;
  CHECK(cudaMalloc(&twice, 1000));
  CHECK(cudaFree(twice));
  if (cudaFree(twice) != cudaErrorInvalidValue) {
    throw program::Failure("memory can be freed twice");
  }
  void* lost = nullptr;
  CHECK(cudaMalloc(&lost, 1000));
  return 0;
}

}  // namespace

int main() {
  return program::run(body);
}
