// Requests a handle by which another process could open the memory.

#include "program.h"

namespace {

std::uint64_t body() {
  const program::Buffer buffer(5'000);
  cudaIpcMemHandle_t handle{};
  CHECK(cudaIpcGetMemHandle(&handle, buffer.data));
  return 0;
}

}  // namespace

int main() {
  return program::run(body);
}
