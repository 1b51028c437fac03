// A thread's current context is the program's own, and the shared runtime works in it. None of the runtime's
// calls for memory may make another context current.

#include <cuda.h>
#include <cudaTypedefs.h>

#include "program.h"

namespace {

template <class Function>
Function find(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult answer = cudaDriverEntryPointSymbolNotFound;
  CHECK(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &answer));
  if (found == nullptr) {
    throw program::Failure(name);
  }
  return reinterpret_cast<Function>(found);
}

class Context {
 public:
  explicit Context(int gpu) {
    if (find<PFN_cuCtxCreate_v3020>("cuCtxCreate")(&handle_, 0, gpu) != CUDA_SUCCESS) {
      throw program::Failure("cuCtxCreate");
    }
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { find<PFN_cuCtxDestroy_v4000>("cuCtxDestroy")(handle_); }

  void expect_current(const char* call) const {
    CUcontext current = nullptr;
    find<PFN_cuCtxGetCurrent_v4000>("cuCtxGetCurrent")(&current);
    if (current != handle_) {
      throw program::Failure(std::string(call) + " has made another context current");
    }
  }

 private:
  CUcontext handle_ = nullptr;
};

std::uint64_t body() {
  constexpr std::size_t kBytes = 5'000'000;  // more than a pool has already mapped
  const program::Stream stream;
  const program::Buffer stays(kBytes);
  program::Buffer before(kBytes);
  void* block_before = nullptr;
  CHECK(cudaMallocAsync(&block_before, kBytes, stream.handle));
  void* pinned_before = nullptr;
  CHECK(cudaMallocHost(&pinned_before, kBytes));
  {
    const Context own(0);
    {
      const program::Buffer buffer(kBytes);
      own.expect_current("cudaMalloc");
      CHECK(cudaMemset(buffer.data, 1, kBytes));
    }
    own.expect_current("cudaFree");
    { const program::PinnedBuffer pinned(kBytes, 0); }
    own.expect_current("cudaFreeHost");
    std::size_t free = 0;
    std::size_t total = 0;
    CHECK(cudaMemGetInfo(&free, &total));
    own.expect_current("cudaMemGetInfo");
    CHECK(cudaFree(std::exchange(before.data, nullptr)));
    own.expect_current("cudaFree of the primary context's memory");
    CHECK(cudaFreeAsync(block_before, stream.handle));
    own.expect_current("cudaFreeAsync");
    { const program::Block block(kBytes, stream.handle); }
    own.expect_current("cudaMallocAsync");
    CHECK(cudaFreeHost(pinned_before));
    own.expect_current("cudaFreeHost of the primary context's memory");
    { const program::Stream brief; }
    own.expect_current("cudaStreamDestroy");
    CHECK(cudaDeviceReset());
    own.expect_current("cudaDeviceReset");
  }
  CHECK(cudaMemset(stays.data, 1, kBytes));
  const program::Buffer after(kBytes);
  CHECK(cudaMemset(after.data, 1, kBytes));
  return 0;
}

}  // namespace

int main() {
  return program::run(body);
}
