#pragma once
// The stream pool as a memory resource of CCCL (cuda::mr), for code that allocates through such a resource:
// CCCL's containers, users of RMM, libraries with a parameter cuda::mr::resource_ref. Header-only, over a
// handle of vdnn/allocator.h; C++17.
//
// CCCL has had two sets of names for the same requirements. One class meets both:
//
//   up to 3.0 (CUDA 13.0)  resource: allocate(bytes, alignment); async_resource: allocate_async(bytes,
//                          alignment, stream). Programs define
//                          LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE, as CMake's target vdnn::cccl does.
//   from 3.1 on            synchronous_resource: allocate_sync(bytes, alignment); resource: allocate(stream,
//                          bytes, alignment)
//
// Sources: cuda/__memory_resource/resource.h of CCCL 3.0 and 3.1.

#include <cuda/version>

#if CCCL_VERSION < 3001000 && !defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#error "define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE before the first header of CCCL"
#endif

#include <cstddef>
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#include <stdexcept>

#include "vdnn/allocator.h"
#include "vdnn/allocator_failure.h"
#include "vdnn/deallocation.h"

namespace vdnn {

// Thread-safe, and as cheap to copy as a pointer. The allocator must outlive the resource and all its
// blocks.
//
// Failed allocations throw as described in vdnn/allocator_failure.h. An alignment that is not a power of
// two, or more than kAlignment, throws std::invalid_argument. Deallocation throws nothing, as CCCL requires.
// If the device or the heap refuses what a deallocation needs, or the stream no longer exists, the next user
// of the memory waits (vdnn/deallocation.h). For an address that is no block in use (freed earlier, or of
// another pool), deallocation does nothing, and vdnn_last_error() gives the reason.
class CcclResource {
 public:
  // Blocks begin at multiples of kAlignment bytes, see vdnn/allocator.h.
  static constexpr std::size_t kAlignment = 512;

  explicit CcclResource(vdnn_allocator* allocator, vdnn_block_life life = VDNN_TRANSIENT) noexcept
      : allocator_(allocator), life_(life) {}

  vdnn_allocator* allocator() const noexcept { return allocator_; }

  // Returns a block for work submitted from now on to `stream`, and to streams that are ordered after
  // `stream`. A block may be freed in the order of any stream that is ordered after all uses of the block.
  // The alignment has a default because CUB of CCCL 3.1 and 3.2 passes none when it allocates temporary
  // storage from the resource in its environment.
  void* allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment = kAlignment) {
    require(alignment);
    void* block = nullptr;
    throw_unless_ok(vdnn_allocator_allocate(allocator_, bytes, stream.get(), life_, &block));
    return block;
  }
  void deallocate(cuda::stream_ref stream, void* block, std::size_t, std::size_t = kAlignment) noexcept {
    finish_deallocation(vdnn_allocator_free_on(allocator_, block, stream.get()), allocator_, block);
  }

  // Returns a block that any stream and the host may use immediately. Free it only when all work on it is
  // done.
  void* allocate_sync(std::size_t bytes, std::size_t alignment = kAlignment) {
    require(alignment);
    void* block = nullptr;
    throw_unless_ok(vdnn_allocator_allocate_ready(allocator_, bytes, life_, &block));
    return block;
  }
  void deallocate_sync(void* block, std::size_t, std::size_t = kAlignment) noexcept {
    vdnn_allocator_free_idle(allocator_, block);
  }

  // The same functions under their names in CCCL 3.0.
  void* allocate_async(std::size_t bytes, std::size_t alignment, cuda::stream_ref stream) {
    return allocate(stream, bytes, alignment);
  }
  void deallocate_async(void* block, std::size_t bytes, std::size_t alignment,
                        cuda::stream_ref stream) noexcept {
    deallocate(stream, block, bytes, alignment);
  }
  void* allocate(std::size_t bytes, std::size_t alignment) { return allocate_sync(bytes, alignment); }
  void deallocate(void* block, std::size_t bytes, std::size_t alignment) noexcept {
    deallocate_sync(block, bytes, alignment);
  }

  // Whether either resource may free blocks of the other.
  friend bool operator==(const CcclResource& one, const CcclResource& other) noexcept {
    return one.allocator_ == other.allocator_;
  }
  friend bool operator!=(const CcclResource& one, const CcclResource& other) noexcept {
    return !(one == other);
  }

  friend constexpr void get_property(const CcclResource&, cuda::mr::device_accessible) noexcept {}
#if CCCL_VERSION >= 3002000
  // The properties that containers assume of a resource by default.
  using default_queries = cuda::mr::properties_list<cuda::mr::device_accessible>;
#endif

 private:
  static void require(std::size_t alignment) {
    if (alignment == 0 || kAlignment % alignment != 0) {
      throw std::invalid_argument("the alignment of a block must be a power of two, at most 512 bytes");
    }
  }

  vdnn_allocator* allocator_;
  vdnn_block_life life_;
};

#if CCCL_VERSION < 3001000
static_assert(cuda::mr::async_resource_with<CcclResource, cuda::mr::device_accessible>);
#else
static_assert(cuda::mr::synchronous_resource_with<CcclResource, cuda::mr::device_accessible>);
static_assert(cuda::mr::resource_with<CcclResource, cuda::mr::device_accessible>);
#endif

}  // namespace vdnn
