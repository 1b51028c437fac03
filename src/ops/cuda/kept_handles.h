#pragma once
// Handles of cuDNN and cuBLASLt that live as long as the process.
//
// cudnnDestroy() and cublasLtDestroy() call cudaDeviceSynchronize(). This call waits for the work of every
// session on the GPU. If any thread is capturing a stream of the GPU, the call fails and invalidates the
// capture. So no handle is destroyed: when a library is destroyed, the next library on that GPU uses its
// handle. The number of a GPU's handles is the largest number of libraries that have used it at the same
// time. Do not use a library on a GPU after cudaDeviceReset() of that GPU.

#include <deque>
#include <functional>
#include <mutex>

namespace vdnn::cuda {

// Thread-safe.
class KeptHandles {
 public:
  KeptHandles() = default;
  KeptHandles(const KeptHandles&) = delete;
  KeptHandles& operator=(const KeptHandles&) = delete;

  // Returns an unused handle of the GPU, or a new handle from `make`. Exceptions of `make` are passed on.
  void* take(int ordinal, const std::function<void*()>& make);
  void give_back(void* handle) noexcept;

 private:
  struct Kept {
    int ordinal = 0;
    void* handle = nullptr;
    bool in_use = false;
  };

  // Marks an unused entry as used and returns it. The entry may not have a handle yet.
  Kept& claim(int ordinal);

  std::mutex mutex_;      // guards the member below
  std::deque<Kept> all_;  // addresses are stable
};

// The handles of the process, for each library.
KeptHandles& cudnn_handles();
KeptHandles& cublaslt_handles();

// Takes a handle and gives it back when this object is destroyed.
class KeptHandle {
 public:
  KeptHandle(KeptHandles& kept, int ordinal, const std::function<void*()>& make)
      : kept_(kept), handle_(kept.take(ordinal, make)) {}
  ~KeptHandle() { kept_.give_back(handle_); }
  KeptHandle(const KeptHandle&) = delete;
  KeptHandle& operator=(const KeptHandle&) = delete;

  void* get() const { return handle_; }

 private:
  KeptHandles& kept_;
  void* const handle_;
};

}  // namespace vdnn::cuda
