// Containers of the standard library in page-locked memory. Every round makes new vectors and copies them to
// the GPU and back at full speed. Only the first two vectors lock memory.

#include <cuda_runtime_api.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <memory_resource>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "vdnn/cuda_device.h"
#include "vdnn/pinned_resource.h"

namespace {

constexpr std::size_t kCount = 10'000;

void check(cudaError_t error) {
  if (error != cudaSuccess) {
    throw std::runtime_error(cudaGetErrorString(error));
  }
}

// Part of a program that does not know the library.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes) { check(cudaMalloc(&data_, bytes)); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { cudaFree(data_); }
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

// Copies `numbers` to the GPU and back, and returns the copy.
std::pmr::vector<int> there_and_back(const std::pmr::vector<int>& numbers, const Buffer& buffer) {
  const std::size_t bytes = numbers.size() * sizeof(int);
  std::pmr::vector<int> back(numbers.size(), numbers.get_allocator());
  const cudaError_t sent =
      cudaMemcpyAsync(buffer.data(), numbers.data(), bytes, cudaMemcpyHostToDevice, nullptr);
  const cudaError_t fetched =
      cudaMemcpyAsync(back.data(), buffer.data(), bytes, cudaMemcpyDeviceToHost, nullptr);
  // Synchronises even after a failure. The resource knows no stream, so memory must be idle when it is freed.
  check(cudaStreamSynchronize(nullptr));
  check(sent);
  check(fetched);
  return back;
}

void run() {
  const std::unique_ptr<vdnn::Device> device = vdnn::make_cuda_device({});
  vdnn::PinnedPool pool(*device);
  vdnn::PinnedResource resource(pool);
  const Buffer buffer(kCount * sizeof(int));
  long long sum = 0;
  for (int round = 0; round < 20; ++round) {
    const std::pmr::vector<int> numbers(kCount, round, &resource);
    const std::pmr::vector<int> back = there_and_back(numbers, buffer);
    sum = std::accumulate(back.begin(), back.end(), sum);
  }
  const vdnn::PinnedPoolStatistics statistics = pool.statistics();
  std::printf("sum         %lld\n", sum);
  std::printf("vectors     %llu\n", static_cast<unsigned long long>(statistics.allocations));
  std::printf("page locks  %llu\n", static_cast<unsigned long long>(statistics.page_locks));
}

}  // namespace

int main() {
  try {
    run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pinned_vector: %s\n", error.what());
    return 1;
  }
}
