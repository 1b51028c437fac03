// Memory that host and GPUs share, and queries of GPUs and streams before their first use.

#include "program.h"

namespace {

constexpr std::size_t kBytes = 100'000;

class Managed {
 public:
  Managed() { CHECK(cudaMallocManaged(&data, kBytes, cudaMemAttachGlobal)); }
  Managed(const Managed&) = delete;
  Managed& operator=(const Managed&) = delete;
  ~Managed() { cudaFree(data); }

  void* data = nullptr;
};

void add_gpu(program::Checksum& sum, int gpu) {
  CHECK(cudaSetDevice(gpu));
  cudaDeviceProp properties{};
  CHECK(cudaGetDeviceProperties(&properties, gpu));
  if (properties.managedMemory == 0 || properties.totalGlobalMem < kBytes) {
    throw program::Failure("a GPU has no managed memory");
  }
  sum.add(properties.name, std::strlen(properties.name));
  sum.add(&properties.major, sizeof properties.major);
}

void add_flags(program::Checksum& sum, cudaStream_t stream, unsigned expected) {
  unsigned flags = ~0U;
  CHECK(cudaStreamGetFlags(stream, &flags));
  if (flags != expected) {
    throw program::Failure("a stream reports other flags than it was created with");
  }
  sum.add(&flags, sizeof flags);
}

// Each GPU copies the data and half of it back, and the host reads the last GPU's copy.
void pass_on(program::Checksum& sum, int gpus) {
  const std::vector<unsigned char> content = program::pattern(kBytes, 7);
  const Managed first;
  const Managed second;
  std::memcpy(first.data, content.data(), kBytes);
  for (int gpu = 0; gpu < gpus; ++gpu) {
    CHECK(cudaSetDevice(gpu));
    const program::Stream stream;
    add_flags(sum, stream.handle, cudaStreamNonBlocking);
    CHECK(cudaMemcpyAsync(second.data, first.data, kBytes, cudaMemcpyDefault, stream.handle));
    CHECK(cudaMemcpyAsync(first.data, second.data, kBytes / 2, cudaMemcpyDefault, stream.handle));
    CHECK(cudaStreamSynchronize(stream.handle));
  }
  cudaPointerAttributes attributes{};
  CHECK(cudaPointerGetAttributes(&attributes, second.data));
  if (attributes.type != cudaMemoryTypeManaged || attributes.hostPointer != attributes.devicePointer) {
    throw program::Failure("managed memory is not reported as managed");
  }
  sum.add(second.data, kBytes);
}

void expect_refusals() {
  void* data = nullptr;
  cudaDeviceProp properties{};
  if (cudaMallocManaged(&data, 0, cudaMemAttachGlobal) != cudaErrorInvalidValue ||
      cudaMallocManaged(&data, kBytes, 0) != cudaErrorInvalidValue ||
      cudaGetDeviceProperties(&properties, 99) != cudaErrorInvalidDevice) {
    throw program::Failure("an invalid call succeeds");
  }
  cudaGetLastError();
}

std::uint64_t body() {
  int gpus = 0;
  CHECK(cudaGetDeviceCount(&gpus));
  program::Checksum sum;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    add_gpu(sum, gpu);
  }
  const program::Stream blocking(cudaStreamDefault);
  add_flags(sum, blocking.handle, cudaStreamDefault);
  add_flags(sum, nullptr, cudaStreamDefault);
  pass_on(sum, gpus);
  expect_refusals();
  return sum.value();
}

}  // namespace

int main() {
  return program::run(body);
}
