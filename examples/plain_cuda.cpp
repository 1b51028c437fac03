// A CUDA program that does not know vdnn, for `vdnn run --summary 1 -- plain_cuda`. It allocates and frees
// buffers. Its output is the same with and without `vdnn run`; the summary shows how many calls the pool has
// served. There are two builds of this program. In the build with CUDA's shared runtime, libvdnn_preload.so
// intercepts calls of the runtime. In the build with the static runtime, nvcc's default, libvdnn_preload.so
// intercepts the runtime's look-up of the driver.

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
