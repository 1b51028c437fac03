// A program that also calls the driver directly. It finds functions by the names that the driver's library
// exports, has its own context beside the GPU's primary one, and tries to allocate without any context.

#include <cuda.h>
#include <dlfcn.h>

#include "program.h"

namespace {

void check_driver(CUresult result, const char* call) {
  program::check(static_cast<cudaError_t>(result), call);
}

#define CHECK_DRIVER(call) check_driver(call, #call)

class Driver {
 public:
  Driver() : library_(dlopen("libcuda.so.1", RTLD_NOW)) {
    if (library_ == nullptr) {
      throw program::Failure(dlerror());
    }
    exported("cuMemAlloc_v2", allocate);
    exported("cuMemFree_v2", free);
    exported("cuMemAllocAsync_ptsz", allocate_async);
    exported("cuMemFreeAsync_ptsz", free_async);
    exported("cuGetProcAddress_v2", look_up_);
    found("cuCtxCreate", create_context);
    found("cuCtxDestroy", destroy_context);
    found("cuCtxPopCurrent", pop_context);
    found("cuCtxPushCurrent", push_context);
    found("cuDevicePrimaryCtxRetain", retain);
    found("cuMemsetD8", set);
    found("cuMemcpy", copy);
    found("cuMemAllocHost", allocate_host);
    found("cuMemFreeHost", free_host);
    found("cuDevicePrimaryCtxRelease", release);
    found("cuDevicePrimaryCtxReset", reset);
    found("cuDevicePrimaryCtxGetState", state);
    // cuGetProcAddress as in CUDA 11.3.
    CUresult (*older)(const char*, void**, int, cuuint64_t) = nullptr;
    found("cuGetProcAddress", older, 11030);
    void* address = nullptr;
    CHECK_DRIVER(older("cuMemAlloc", &address, CUDA_VERSION, CU_GET_PROC_ADDRESS_DEFAULT));
    allocate_found = reinterpret_cast<decltype(allocate_found)>(address);
  }

  CUresult (*allocate)(CUdeviceptr*, std::size_t) = nullptr;
  CUresult (*allocate_found)(CUdeviceptr*, std::size_t) = nullptr;
  CUresult (*allocate_async)(CUdeviceptr*, std::size_t, CUstream) = nullptr;
  CUresult (*allocate_host)(void**, std::size_t) = nullptr;
  CUresult (*free)(CUdeviceptr) = nullptr;
  CUresult (*free_async)(CUdeviceptr, CUstream) = nullptr;
  CUresult (*free_host)(void*) = nullptr;
  CUresult (*create_context)(CUcontext*, unsigned, CUdevice) = nullptr;
  CUresult (*destroy_context)(CUcontext) = nullptr;
  CUresult (*pop_context)(CUcontext*) = nullptr;
  CUresult (*push_context)(CUcontext) = nullptr;
  CUresult (*retain)(CUcontext*, CUdevice) = nullptr;
  CUresult (*release)(CUdevice) = nullptr;
  CUresult (*reset)(CUdevice) = nullptr;
  CUresult (*state)(CUdevice, unsigned*, int*) = nullptr;
  CUresult (*set)(CUdeviceptr, unsigned char, std::size_t) = nullptr;
  CUresult (*copy)(CUdeviceptr, CUdeviceptr, std::size_t) = nullptr;

 private:
  template <class Function>
  void exported(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr) {
      throw program::Failure(dlerror());
    }
  }
  template <class Function>
  void found(const char* name, Function& function, int version = CUDA_VERSION) {
    void* address = nullptr;
    CHECK_DRIVER(look_up_(name, &address, version, CU_GET_PROC_ADDRESS_DEFAULT, nullptr));
    function = reinterpret_cast<Function>(address);
  }

  void* library_;
  CUresult (*look_up_)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*) = nullptr;
};

std::uint64_t use(const Driver& driver, CUdeviceptr memory, std::size_t bytes, unsigned char value) {
  std::vector<unsigned char> back(bytes);
  CHECK_DRIVER(driver.set(memory, value, bytes));
  CHECK_DRIVER(driver.copy(reinterpret_cast<CUdeviceptr>(back.data()), memory, bytes));
  program::Checksum sum;
  sum.add(back.data(), bytes);
  return sum.value();
}

constexpr std::size_t kBytes = 10'000;

std::uint64_t use_primary(const Driver& driver) {
  std::uint64_t sum = 0;
  CUdeviceptr memory = 0;
  for (const auto& allocate : {driver.allocate, driver.allocate_found}) {
    CHECK_DRIVER(allocate(&memory, kBytes));
    sum = 31 * sum + use(driver, memory, kBytes, 1);
    CHECK_DRIVER(driver.free(memory));
  }
  CHECK_DRIVER(driver.allocate_async(&memory, kBytes, nullptr));
  CHECK_DRIVER(driver.free_async(memory, nullptr));
  void* host = nullptr;
  CHECK_DRIVER(driver.allocate_host(&host, kBytes));
  CHECK_DRIVER(driver.copy(reinterpret_cast<CUdeviceptr>(host), reinterpret_cast<CUdeviceptr>(host), 1));
  CHECK_DRIVER(driver.free_host(host));
  return sum;
}

// Uses memory of a context of its own, and frees memory of the primary context there.
std::uint64_t use_own(const Driver& driver) {
  CUdeviceptr memory = 0;
  CHECK_DRIVER(driver.allocate(&memory, kBytes));
  CUcontext own = nullptr;
  CHECK_DRIVER(driver.create_context(&own, 0, 0));
  CUdeviceptr other = 0;
  CHECK_DRIVER(driver.allocate(&other, 2 * kBytes));
  const std::uint64_t sum = use(driver, other, 2 * kBytes, 2);
  CHECK_DRIVER(driver.free(other));
  CHECK_DRIVER(driver.free(memory));
  CHECK_DRIVER(driver.destroy_context(own));
  return sum;
}

std::uint64_t body() {
  const Driver driver;
  CUdeviceptr memory = 0;
  if (driver.allocate(&memory, kBytes) != CUDA_ERROR_INVALID_CONTEXT) {
    throw program::Failure("memory was allocated without a context");
  }
  std::uint64_t sum = 0;
  for (int round = 0; round < 2; ++round) {
    CUcontext primary = nullptr;
    CHECK_DRIVER(driver.retain(&primary, 0));
    CHECK_DRIVER(driver.push_context(primary));
    sum = 31 * sum + use_primary(driver);
    sum = 31 * sum + use_own(driver);
    CHECK_DRIVER(driver.pop_context(&primary));
    if (round == 0) {
      CHECK_DRIVER(driver.reset(0));
    }
    CHECK_DRIVER(driver.release(0));
    unsigned flags = 0;
    int active = 0;
    CHECK_DRIVER(driver.state(0, &flags, &active));
    if (round == 0 && active != 0) {
      throw program::Failure("the GPU is in use after its reset");
    }
  }
  return sum;
}

}  // namespace

int main() {
  return program::run(body);
}
