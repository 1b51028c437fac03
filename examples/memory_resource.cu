// The stream pool as a memory resource of CCCL. `Buffer` represents a library that does not know vdnn.
// `Buffer` accepts any resource through CCCL's reference, and works on a stream.

#include <cuda_runtime_api.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <vector>

#include "vdnn/cccl_resource.h"

namespace {

void check(cudaError_t error) {
  if (error != cudaSuccess) {
    throw std::runtime_error(cudaGetErrorString(error));
  }
}

// --- a library

class Buffer {
 public:
#if CCCL_VERSION < 3001000
  using Resource = cuda::mr::async_resource_ref<cuda::mr::device_accessible>;
#else
  using Resource = cuda::mr::resource_ref<cuda::mr::device_accessible>;
#endif

  Buffer(Resource resource, cudaStream_t stream, std::size_t bytes)
      : resource_(resource), stream_(stream), bytes_(bytes) {
#if CCCL_VERSION < 3001000
    data_ = resource_.allocate_async(bytes_, 256, stream_);
#else
    data_ = resource_.allocate(cuda::stream_ref(stream_), bytes_, 256);
#endif
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
#if CCCL_VERSION < 3001000
    resource_.deallocate_async(data_, bytes_, 256, stream_);
#else
    resource_.deallocate(cuda::stream_ref(stream_), data_, bytes_, 256);
#endif
  }

  void fill(int value) {
    check(cudaMemsetAsync(data_, value, bytes_, stream_));
  }
  std::vector<unsigned char> content() const {
    std::vector<unsigned char> copy(bytes_);
    check(cudaMemcpyAsync(copy.data(), data_, bytes_, cudaMemcpyDeviceToHost, stream_));
    check(cudaStreamSynchronize(stream_));
    return copy;
  }

 private:
  Resource resource_;
  cudaStream_t stream_;
  std::size_t bytes_;
  void* data_ = nullptr;
};

// --- its user

class Pool {
 public:
  Pool() { vdnn::throw_unless_ok(vdnn_allocator_create(nullptr, &handle_)); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() { vdnn_allocator_destroy(handle_); }
  vdnn_allocator* handle() const { return handle_; }

 private:
  vdnn_allocator* handle_ = nullptr;
};

class Stream {
 public:
  Stream() { check(cudaStreamCreate(&handle_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(handle_); }
  cudaStream_t handle() const { return handle_; }

 private:
  cudaStream_t handle_ = nullptr;
};

void run() {
  const Stream stream;
  const Pool pool;
  vdnn::CcclResource resource(pool.handle());
  unsigned long long sum = 0;
  for (int round = 0; round < 20; ++round) {
    Buffer buffer(resource, stream.handle(), 10'000 + static_cast<std::size_t>(round));
    buffer.fill(round);
    for (const unsigned char byte : buffer.content()) {
      sum += byte;
    }
  }
  vdnn_allocator_statistics statistics{VDNN_ALLOCATOR_VERSION};
  vdnn::throw_unless_ok(vdnn_allocator_get_statistics(pool.handle(), &statistics));
  std::printf("sum             %llu\n", sum);
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
    std::fprintf(stderr, "memory_resource: %s\n", error.what());
    return 1;
  }
}
