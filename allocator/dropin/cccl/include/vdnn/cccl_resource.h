#pragma once
// The stream pool as a memory resource of CCCL (cuda::mr), for whatever is written against those: its
// containers, RMM's users, libraries that take a cuda::mr::resource_ref. Headers alone, over a handle of
// vdnn/allocator.h; C++17.
//
// CCCL has spelled the same requirements twice, and one class meets both:
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

// Thread-safe, and as cheap to copy as the handle, which must outlive it and all blocks.
//
// What cannot be had throws as vdnn/allocator_failure.h says, an alignment that is not a power of two or more
// than kAlignment std::invalid_argument. Deallocation throws nothing, as CCCL wants it: where the device
// or the heap refuses something meanwhile, or the stream does not exist any more, whoever is given the memory
// next waits (vdnn/deallocation.h); of what is no block (freed before, of another pool) nothing changes, and
// vdnn_last_error() says why.
class CcclResource {
 public:
  // Of all blocks, see vdnn/allocator.h.
  static constexpr std::size_t kAlignment = 512;

  explicit CcclResource(vdnn_allocator* allocator, vdnn_block_life life = VDNN_TRANSIENT) noexcept
      : allocator_(allocator), life_(life) {}

  vdnn_allocator* allocator() const noexcept { return allocator_; }

  // For what `stream` is given from now on, and for whoever is ordered after it. A block is given back in the
  // order of a stream, any one, that comes after all its uses. CUB of CCCL 3.1 and 3.2, which takes temporary
  // storage from a resource in its environment, names no alignment.
  void* allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment = kAlignment) {
    require(alignment);
    void* block = nullptr;
    throw_unless_ok(vdnn_allocator_allocate(allocator_, bytes, stream.get(), life_, &block));
    return block;
  }
  void deallocate(cuda::stream_ref stream, void* block, std::size_t, std::size_t = kAlignment) noexcept {
    finish_deallocation(vdnn_allocator_free_on(allocator_, block, stream.get()), allocator_, block);
  }

  // For any stream at once, and for the host. Work on a block is done when it is given back.
  void* allocate_sync(std::size_t bytes, std::size_t alignment = kAlignment) {
    require(alignment);
    void* block = nullptr;
    throw_unless_ok(vdnn_allocator_allocate_ready(allocator_, bytes, life_, &block));
    return block;
  }
  void deallocate_sync(void* block, std::size_t, std::size_t = kAlignment) noexcept {
    vdnn_allocator_free_idle(allocator_, block);
  }

  // As CCCL 3.0 spells them.
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

  // Whether each may give back what the other has given.
  friend bool operator==(const CcclResource& one, const CcclResource& other) noexcept {
    return one.allocator_ == other.allocator_;
  }
  friend bool operator!=(const CcclResource& one, const CcclResource& other) noexcept {
    return !(one == other);
  }

  friend constexpr void get_property(const CcclResource&, cuda::mr::device_accessible) noexcept {}
#if CCCL_VERSION >= 3002000
  // What containers take for granted of it where they are not told.
  using default_queries = cuda::mr::properties_list<cuda::mr::device_accessible>;
#endif

 private:
  static void require(std::size_t alignment) {
    if (alignment == 0 || kAlignment % alignment != 0) {
      throw std::invalid_argument(
          "blocks are aligned to 512 bytes: no more, and no other than a power of two");
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
