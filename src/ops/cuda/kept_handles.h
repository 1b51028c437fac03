#pragma once
// Handles of cuDNN and cuBLASLt that live as long as the process.
//
// cudnnDestroy() and cublasLtDestroy() call cudaDeviceSynchronize(). That waits for the work of every session
// on the GPU, and where a stream of the GPU is being captured, by any thread, it fails and invalidates the
// capture. So no handle is destroyed: when a library ends, its handle serves the next one on that GPU. A GPU
// has as many handles as libraries have used it at the same time. A program that calls cudaDeviceReset() may
// use no library on that GPU afterwards.

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

  // A handle of the GPU that nobody uses, else what `make` returns. Throws what `make` throws.
  void* take(int ordinal, const std::function<void*()>& make);
  void give_back(void* handle) noexcept;

 private:
  struct Kept {
    int ordinal = 0;
    void* handle = nullptr;
    bool in_use = false;
  };

  // One that nobody uses, from now on in use. Its handle may still have to be made.
  Kept& claim(int ordinal);

  std::mutex mutex_;      // guards what follows
  std::deque<Kept> all_;  // stay where they are
};

// Of each library those of the process.
KeptHandles& cudnn_handles();
KeptHandles& cublaslt_handles();

// In use until it dies.
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
