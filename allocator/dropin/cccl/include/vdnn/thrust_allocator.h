#pragma once
// The stream pool for Thrust: an allocator for its containers and for the temporary storage of its
// algorithms. Header-only, over a handle of vdnn/allocator.h; C++17.
//
//   vdnn::ThrustAllocator<char> temporary(allocator, stream);
//   thrust::sort(thrust::cuda::par_nosync(temporary).on(stream), first, last);
//
//   thrust::device_vector<int, vdnn::ThrustAllocator<int>> numbers(n, vdnn::ThrustAllocator<int>(allocator));
//
// Temporary storage belongs to the stream that the algorithm runs on. Containers fill and copy on the
// default stream, so give their allocator that stream: null, or cudaStreamPerThread in programs that are
// compiled with --default-stream per-thread. A program that uses a container on another stream must wait for
// that stream before it destroys the container.

#include <cuda_runtime_api.h>
#include <thrust/device_ptr.h>
#include <thrust/device_reference.h>

#include <cstddef>
#include <limits>
#include <new>
#include <type_traits>

#include "vdnn/allocator.h"
#include "vdnn/allocator_failure.h"
#include "vdnn/deallocation.h"

namespace vdnn {

// Thread-safe, and as cheap to copy as two pointers. The vdnn_allocator and the stream must outlive it and
// all its blocks. Throws as described in vdnn/allocator_failure.h.
template <class T>
class ThrustAllocator {
 public:
  using value_type = T;
  using pointer = thrust::device_ptr<T>;
  using const_pointer = thrust::device_ptr<const T>;
  using reference = thrust::device_reference<T>;
  using const_reference = thrust::device_reference<const T>;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  // A moved container keeps its memory and its allocator, so that the memory is freed in the order of the
  // stream that used it.
  using propagate_on_container_copy_assignment = std::true_type;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;
  template <class U>
  struct rebind {
    using other = ThrustAllocator<U>;
  };

  explicit ThrustAllocator(vdnn_allocator* allocator, cudaStream_t stream = nullptr) noexcept
      : allocator_(allocator), stream_(stream) {}
  template <class U>
  ThrustAllocator(const ThrustAllocator<U>& other) noexcept
      : allocator_(other.allocator()), stream_(other.stream()) {}

  vdnn_allocator* allocator() const noexcept { return allocator_; }
  cudaStream_t stream() const noexcept { return stream_; }

  pointer allocate(size_type count) {
    if (count > std::numeric_limits<size_type>::max() / sizeof(T)) {
      throw std::bad_array_new_length();
    }
    void* block = nullptr;
    throw_unless_ok(vdnn_allocator_allocate(allocator_, count * sizeof(T), stream_, VDNN_TRANSIENT, &block));
    return pointer(static_cast<T*>(block));
  }
  void deallocate(pointer block, size_type) noexcept {
    void* const address = thrust::raw_pointer_cast(block);
    finish_deallocation(vdnn_allocator_free(allocator_, address), allocator_, address);
  }

  // Whether either allocator may free blocks of the other in the right order.
  friend bool operator==(const ThrustAllocator& one, const ThrustAllocator& other) noexcept {
    return one.allocator_ == other.allocator_ && one.stream_ == other.stream_;
  }
  friend bool operator!=(const ThrustAllocator& one, const ThrustAllocator& other) noexcept {
    return !(one == other);
  }

 private:
  vdnn_allocator* allocator_;
  cudaStream_t stream_;
};

}  // namespace vdnn
