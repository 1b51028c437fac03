// A server that creates, uses and destroys a stream for each request. Some requests run on a thread of their
// own and use its default stream.

#include <cuda_runtime_api.h>

#include <thread>

#include "program.h"

namespace {

constexpr int kRequests = 3000;

void serve(cudaStream_t stream, std::size_t bytes, program::Checksum* sum) {
  const std::vector<unsigned char> content = program::pattern(1000, bytes);
  std::vector<unsigned char> result(content.size());
  const program::Block passing(2 * bytes, stream);
  const program::Block block(bytes, stream);
  CHECK(cudaMemcpyAsync(passing.data, content.data(), content.size(), cudaMemcpyHostToDevice, stream));
  CHECK(cudaMemcpyAsync(block.data, passing.data, content.size(), cudaMemcpyDeviceToDevice, stream));
  if (sum != nullptr) {
    CHECK(cudaMemcpyAsync(result.data(), block.data, result.size(), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    sum->add(result.data(), result.size());
  }
}

std::uint64_t body() {
  program::Checksum sum;
  for (int request = 0; request < kRequests; ++request) {
    const std::size_t bytes = request % 2 == 0 ? 4096 : 600'000;
    if (request % 8 == 7) {
      std::thread([&] { serve(cudaStreamPerThread, bytes, &sum); }).join();
    } else {
      const program::Stream stream;
      serve(stream.handle, bytes, request % 8 == 0 ? &sum : nullptr);
    }
  }
  return sum.value();
}

}  // namespace

int main() {
  return program::run(body);
}
