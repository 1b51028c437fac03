// A CUDA program that has never heard of vdnn, for `vdnn run --summary 1 -- plain_cuda`: buffers that come
// and go. What it prints is the same with and without; the summary says how many calls the pool has served.
// It is built twice: with CUDA's shared runtime, in front of which libvdnn_preload.so stands, and, as nvcc
// does it, with the static one, which is served through its look-up of the driver.

#include <cuda_runtime_api.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <vector>

namespace {

void check(cudaError_t error) {
  if (error != cudaSuccess) {
    throw std::runtime_error(cudaGetErrorString(error));
  }
}

class Buffer {
 public:
  explicit Buffer(std::size_t bytes) : bytes_(bytes) { check(cudaMalloc(&data_, bytes)); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { cudaFree(data_); }

  void fill(int value) { check(cudaMemset(data_, value, bytes_)); }
  std::vector<unsigned char> content() const {
    std::vector<unsigned char> copy(bytes_);
    check(cudaMemcpy(copy.data(), data_, bytes_, cudaMemcpyDeviceToHost));
    return copy;
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

void run() {
  unsigned long long sum = 0;
  for (int round = 0; round < 20; ++round) {
    Buffer one(10'000 + static_cast<std::size_t>(round));
    Buffer other(1'000'000);
    one.fill(round);
    other.fill(1);
    for (const Buffer* const buffer : {&one, &other}) {
      for (const unsigned char byte : buffer->content()) {
        sum += byte;
      }
    }
  }
  std::printf("sum  %llu\n", sum);
}

}  // namespace

int main() {
  try {
    run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plain_cuda: %s\n", error.what());
    return 1;
  }
}
