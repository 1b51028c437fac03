// A program as nvcc builds it: it registers its kernels before main() and launches them by their addresses.
// The stand-in does not execute kernels, so the program reads none of their results.

#include "program.h"

namespace {

__global__ void scale(float* data, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) {
    data[i] *= 2.0F;
  }
}

std::uint64_t body() {
  program::Checksum sum;
  const program::Stream stream;
  for (int count = 1; count < 2000; count += 97) {
    const program::Buffer data(static_cast<std::size_t>(count) * sizeof(float));
    CHECK(cudaMemsetAsync(data.data, count % 256, data.bytes, stream.handle));
    scale<<<1 + count / 128, 128, 0, stream.handle>>>(static_cast<float*>(data.data), 0);
    CHECK(cudaGetLastError());
    std::vector<unsigned char> back(data.bytes);
    CHECK(cudaMemcpyAsync(back.data(), data.data, data.bytes, cudaMemcpyDeviceToHost, stream.handle));
    CHECK(cudaStreamSynchronize(stream.handle));
    sum.add(back.data(), back.size());
  }
  return sum.value();
}

}  // namespace

int main() {
  return program::run(body);
}
