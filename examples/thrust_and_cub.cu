// Thrust and CUB on the stream pool. Each round creates a new vector and new temporary storage of a sort and
// of a reduction. The pool takes memory from the GPU only in the first round.

#include <cuda_runtime_api.h>
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/sort.h>
#include <thrust/system/cuda/execution_policy.h>

#include <algorithm>
#include <cstdio>
#include <cub/device/device_reduce.cuh>
#include <exception>
#include <memory>
#include <stdexcept>

#include "vdnn/cub_allocator.h"
#include "vdnn/thrust_allocator.h"

namespace {

using Vector = thrust::device_vector<int, vdnn::ThrustAllocator<int>>;

void check(cudaError_t error) {
  if (error != cudaSuccess) {
    throw std::runtime_error(cudaGetErrorString(error));
  }
}

struct Destroy {
  void operator()(vdnn_allocator* pool) const { vdnn_allocator_destroy(pool); }
};
using Pool = std::unique_ptr<vdnn_allocator, Destroy>;

Pool make_pool() {
  vdnn_allocator* made = nullptr;
  vdnn::throw_unless_ok(vdnn_allocator_create(nullptr, &made));
  return Pool(made);
}

// Temporary storage for CUB on the default stream.
class Storage {
 public:
  Storage(vdnn_allocator* pool, std::size_t bytes) : allocator_(pool) {
    check(allocator_.DeviceAllocate(&data_, bytes));
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage() { allocator_.DeviceFree(data_); }
  void* data() const { return data_; }

 private:
  vdnn::CubAllocator allocator_;
  void* data_ = nullptr;
};

// 999, 998, ..., 0
thrust::host_vector<int> falling() {
  thrust::host_vector<int> numbers(1000);
  std::generate(numbers.begin(), numbers.end(), [next = 1000]() mutable { return --next; });
  return numbers;
}

void sort(vdnn_allocator* pool, Vector& numbers) {
  const cudaStream_t stream = nullptr;  // the stream of the vector
  vdnn::ThrustAllocator<char> temporary(pool, stream);
  thrust::sort(thrust::cuda::par_nosync(temporary).on(stream), numbers.begin(), numbers.end());
}

long long sum_of(vdnn_allocator* pool, const Vector& numbers) {
  const int count = static_cast<int>(numbers.size());
  const int* const first = thrust::raw_pointer_cast(numbers.data());
  const Storage result(pool, sizeof(long long));
  auto* const on_device = static_cast<long long*>(result.data());
  std::size_t bytes = 0;
  check(cub::DeviceReduce::Sum(nullptr, bytes, first, on_device, count));
  const Storage temporary(pool, bytes);
  check(cub::DeviceReduce::Sum(temporary.data(), bytes, first, on_device, count));
  long long sum = 0;
  check(cudaMemcpy(&sum, on_device, sizeof sum, cudaMemcpyDeviceToHost));
  return sum;
}

void run() {
  const Pool pool = make_pool();
  const thrust::host_vector<int> numbers = falling();
  long long sum = 0;
  bool sorted = true;
  for (int round = 0; round < 10; ++round) {
    Vector on_device(numbers.begin(), numbers.end(), vdnn::ThrustAllocator<int>(pool.get()));
    sort(pool.get(), on_device);
    sum += sum_of(pool.get(), on_device);
    const thrust::host_vector<int> back = on_device;
    sorted = sorted && std::is_sorted(back.begin(), back.end());
  }
  vdnn_allocator_statistics statistics{VDNN_ALLOCATOR_VERSION};
  vdnn::throw_unless_ok(vdnn_allocator_get_statistics(pool.get(), &statistics));
  std::printf("sorted          %s\n", sorted ? "yes" : "no");
  std::printf("sum             %lld\n", sum);
  std::printf("blocks          %llu\n", static_cast<unsigned long long>(statistics.all.blocks.added));
  std::printf("growths         %llu\n", static_cast<unsigned long long>(statistics.growths));
  std::printf("not given back  %llu\n", static_cast<unsigned long long>(statistics.all.blocks.current));
}

}  // namespace

int main() {
  try {
    run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "thrust_and_cub: %s\n", error.what());
    return 1;
  }
}
