// A program that forks while it uses the GPU. The child exits normally and makes no call of CUDA, which would
// be forbidden there.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "program.h"

namespace {

constexpr std::size_t kBytes = 100'000;

void expect_child_ends_well() {
  const pid_t child = fork();
  if (child == 0) {
    std::exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  if (status != 0) {
    throw program::Failure("the child has ended with status " + std::to_string(status));
  }
}

std::uint64_t body() {
  const program::Stream stream;
  const program::Buffer buffer(kBytes);
  const program::Block block(kBytes, stream.handle);
  const program::PinnedBuffer pinned(kBytes, 0);
  { const program::PinnedBuffer kept(kBytes, 0); }
  const std::vector<unsigned char> content = program::pattern(kBytes, 1);
  CHECK(cudaMemcpyAsync(buffer.data, content.data(), kBytes, cudaMemcpyHostToDevice, stream.handle));
  CHECK(cudaMemcpyAsync(block.data, buffer.data, kBytes, cudaMemcpyDeviceToDevice, stream.handle));
  expect_child_ends_well();
  CHECK(cudaMemcpyAsync(pinned.data, block.data, kBytes, cudaMemcpyDeviceToHost, stream.handle));
  CHECK(cudaStreamSynchronize(stream.handle));
  program::Checksum sum;
  sum.add(pinned.data, kBytes);
  return sum.value();
}

}  // namespace

int main() {
  return program::run(body);
}
