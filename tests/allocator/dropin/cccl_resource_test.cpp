// The pool as a memory resource of CCCL, under both of CCCL's sets of names (vdnn/cccl_resource.h).

#include "vdnn/cccl_resource.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <concepts>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "streams/cuda/cuda_pool_backend.h"
#include "tests/allocator/dropin/cpu_allocator.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/fakes/heap.h"

namespace vdnn {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The requirements of later versions of CCCL, restated so that a build with the installed version checks
// them, too. They are `synchronous_resource` and `resource` of cuda/__memory_resource/resource.h in CCCL
// 3.1.2 (CUDA 13.1), and are the same in 3.2 and 3.5.
template <class R>
concept LaterSynchronousResource = std::equality_comparable<R> &&
    requires(R& resource, void* block, std::size_t bytes, std::size_t alignment) {
  { resource.allocate_sync(bytes, alignment) } -> std::same_as<void*>;
  { resource.deallocate_sync(block, bytes, alignment) } -> std::same_as<void>;
};
template <class R>
concept LaterResource = LaterSynchronousResource<R> &&
    requires(R& resource, void* block, std::size_t bytes, std::size_t alignment, cuda::stream_ref stream) {
  { resource.allocate(stream, bytes, alignment) } -> std::same_as<void*>;
  { resource.deallocate(stream, block, bytes, alignment) } -> std::same_as<void>;
};
// Further calls that cub/detail/temporary_storage.cuh makes in 3.1 and 3.2 when an algorithm's environment
// contains a resource.
template <class R>
concept TemporaryStorage = LaterResource<R> &&
    requires(R& resource, void* block, std::size_t bytes, cuda::stream_ref stream) {
  { resource.allocate(stream, bytes) } -> std::same_as<void*>;
  { resource.deallocate(stream, block, bytes) } -> std::same_as<void>;
};
// The requirements of CCCL 3.0 (CUDA 13.0): `resource` and `async_resource`.
template <class R>
concept EarlierResource = std::equality_comparable<R> &&
    requires(R& resource, void* block, std::size_t bytes, std::size_t alignment) {
  { resource.allocate(bytes, alignment) } -> std::same_as<void*>;
  { resource.deallocate(block, bytes, alignment) } -> std::same_as<void>;
};
template <class R>
concept EarlierAsyncResource = EarlierResource<R> &&
    requires(R& resource, void* block, std::size_t bytes, std::size_t alignment, cuda::stream_ref stream) {
  { resource.allocate_async(bytes, alignment, stream) } -> std::same_as<void*>;
  { resource.deallocate_async(block, bytes, alignment, stream) } -> std::same_as<void>;
};

static_assert(TemporaryStorage<CcclResource>);
static_assert(EarlierAsyncResource<CcclResource>);
static_assert(cuda::has_property<CcclResource, cuda::mr::device_accessible>);

// The resource as seen by a library that knows only CCCL, under the names of the installed version.
using Accessible = cuda::mr::device_accessible;
#if CCCL_VERSION < 3001000
using AnyResource = cuda::mr::async_resource_ref<Accessible>;
using AnySynchronousResource = cuda::mr::resource_ref<Accessible>;
void* take(AnyResource resource, std::size_t bytes, cudaStream_t stream) {
  return resource.allocate_async(bytes, 256, stream);
}
void give_back(AnyResource resource, void* block, std::size_t bytes, cudaStream_t stream) {
  resource.deallocate_async(block, bytes, 256, stream);
}
void* take(AnySynchronousResource resource, std::size_t bytes) {
  return resource.allocate(bytes, 256);
}
void give_back(AnySynchronousResource resource, void* block, std::size_t bytes) {
  resource.deallocate(block, bytes, 256);
}
#else
using AnyResource = cuda::mr::resource_ref<Accessible>;
using AnySynchronousResource = cuda::mr::synchronous_resource_ref<Accessible>;
void* take(AnyResource resource, std::size_t bytes, cudaStream_t stream) {
  return resource.allocate(cuda::stream_ref(stream), bytes, 256);
}
void give_back(AnyResource resource, void* block, std::size_t bytes, cudaStream_t stream) {
  resource.deallocate(cuda::stream_ref(stream), block, bytes, 256);
}
void* take(AnySynchronousResource resource, std::size_t bytes) {
  return resource.allocate_sync(bytes, 256);
}
void give_back(AnySynchronousResource resource, void* block, std::size_t bytes) {
  resource.deallocate_sync(block, bytes, 256);
}
#endif

class CcclResourceTest : public testing::CpuAllocator {};

TEST_F(CcclResourceTest, BlocksBelongToTheStreamThatTheyWereAllocatedFor) {
  CcclResource resource(allocator_);
  void* const block = resource.allocate(cuda::stream_ref(one_), 1000, 256);
  EXPECT_EQ(figures(one_).requested.current, 1000U);
  EXPECT_EQ(figures(other_).requested.current, 0U);
  resource.deallocate(cuda::stream_ref(one_), block, 1000, 256);
  EXPECT_EQ(resource.allocate_async(1000, 256, one_), block) << "taken back without any wait";
  EXPECT_EQ(statistics().events_recorded, 0U);
  resource.deallocate_async(block, 1000, 256, one_);
}

// The block is free once the second stream is done with it, so the first stream has to wait, on the device.
TEST_F(CcclResourceTest, BlocksAreGivenBackInTheOrderOfTheStreamThatIsNamed) {
  CcclResource resource(allocator_);
  for (int round = 0; round < 2; ++round) {
    void* const block = resource.allocate(cuda::stream_ref(one_), kBudget, 256);
    resource.deallocate(cuda::stream_ref(other_), block, kBudget, 256);
  }
  EXPECT_EQ(statistics().reused_after_wait, 1U);
  EXPECT_EQ(statistics().stream_waits, 1U);
}

TEST_F(CcclResourceTest, SynchronousBlocksAreReadyForAnybody) {
  CcclResource resource(allocator_);
  resource.deallocate_async(resource.allocate_async(kBudget, 256, one_), kBudget, 256, one_);
  void* const block = resource.allocate_sync(kBudget, 1);
  EXPECT_EQ(statistics().host_waits, 1U) << "for the work of stream one";
  resource.deallocate_sync(block, kBudget, 1);
  EXPECT_EQ(resource.allocate(kBudget, 256), block);
  EXPECT_EQ(statistics().host_waits, 1U) << "it was given back idle";
  resource.deallocate(block, kBudget, 256);
}

TEST_F(CcclResourceTest, WorksThroughATypeErasedReference) {
  CcclResource resource(allocator_);
  void* const block = take(AnyResource(resource), 3000, other_);
  EXPECT_EQ(figures(other_).requested.current, 3000U);
  give_back(AnyResource(resource), block, 3000, other_);
  void* const ready = take(AnySynchronousResource(resource), 500);
  EXPECT_EQ(figures().requested.current, 500U);
  give_back(AnySynchronousResource(resource), ready, 500);
}

TEST_F(CcclResourceTest, TellsThePoolThatBlocksArePersistent) {
  CcclResource resource(allocator_, VDNN_PERSISTENT);
  void* const block = resource.allocate(cuda::stream_ref(one_), 1000, 256);
  void* const ready = resource.allocate_sync(2000, 256);
  EXPECT_EQ(statistics().persistent_blocks.requested.current, 3000U);
  resource.deallocate(cuda::stream_ref(one_), block, 1000, 256);
  resource.deallocate_sync(ready, 2000, 256);
}

TEST_F(CcclResourceTest, IsEqualWhereThePoolIsTheSame) {
  vdnn_allocator* const another = make();
  EXPECT_EQ(CcclResource(allocator_), CcclResource(allocator_, VDNN_PERSISTENT));
  EXPECT_NE(CcclResource(allocator_), CcclResource(another));
  EXPECT_EQ(vdnn_allocator_destroy(another), VDNN_OK);
}

template <class Call>
std::string shortage_of(const Call& call) {
  try {
    call();
  } catch (const std::bad_alloc& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(CcclResourceTest, ExhaustionIsBadAllocWithTheNumbers) {
  CcclResource resource(allocator_);
  constexpr std::uint64_t kTooMuch = kBudget + 1;
  EXPECT_THAT(shortage_of([&] { resource.allocate(cuda::stream_ref(one_), kTooMuch, 256); }),
              HasSubstr(std::to_string(kTooMuch)));
  EXPECT_THAT(shortage_of([&] { resource.allocate_sync(kTooMuch, 256); }),
              HasSubstr(std::to_string(kTooMuch)));
}

TEST_F(CcclResourceTest, MisuseIsRefusedAndChangesNothing) {
  CcclResource resource(allocator_);
  const auto nobody = static_cast<cudaStream_t>(stream_handle(7));
  EXPECT_THROW(resource.allocate(cuda::stream_ref(nobody), 1, 1), std::invalid_argument);
  for (const std::size_t alignment : {0U, 3U, 384U, 1024U}) {
    EXPECT_THROW(resource.allocate(cuda::stream_ref(one_), 1, alignment), std::invalid_argument) << alignment;
    EXPECT_THROW(resource.allocate_sync(1, alignment), std::invalid_argument) << alignment;
  }
  EXPECT_EQ(figures().blocks.added, 0U);
  void* const block = resource.allocate(cuda::stream_ref(one_), 1, 1);
  resource.deallocate_sync(&resource, 1, 1);
  EXPECT_THAT(vdnn_last_error(), HasSubstr("not the pool's"));
  resource.deallocate(cuda::stream_ref(one_), block, 1, 1);
}

// Regression: an alignment of 512 was refused, although vdnn/allocator.h promises it for every block.
TEST_F(CcclResourceTest, GivesTheAlignmentThatIsPromisedOfEveryBlock) {
  CcclResource resource(allocator_);
  void* const block = resource.allocate(cuda::stream_ref(one_), 1, 512);
  resource.deallocate(cuda::stream_ref(one_), block, 1, 512);
  void* const ready = resource.allocate_sync(1, 512);
  resource.deallocate_sync(ready, 1, 512);
}

// Regression: a block freed on a stream that no longer exists stayed in use forever, and no error was
// reported.
TEST_F(CcclResourceTest, BlocksAreGivenBackOnStreamsThatDoNotExistAnyMore) {
  CcclResource resource(allocator_);
  const auto gone = static_cast<cudaStream_t>(stream_handle(7));
  for (std::uint64_t round = 1; round < 4; ++round) {
    void* const block = resource.allocate(cuda::stream_ref(one_), kBudget, 512);
    resource.deallocate(cuda::stream_ref(gone), block, kBudget, 512);
    EXPECT_EQ(figures().blocks.current, 0U);
    EXPECT_EQ(statistics().device_waits, round - 1) << "nobody has reused the memory yet";
    resource.deallocate(cuda::stream_ref(gone), block, kBudget, 512);
    EXPECT_THAT(vdnn_last_error(), HasSubstr("no block in use"));
  }
}

// Regression: if the heap was exhausted, the block was lost. If the device refused the free, the host waited
// for the GPU, which would have invalidated a capture.
TEST_F(CcclResourceTest, RefusedBlocksGoBackWithoutAWaitOfTheHost) {
  CcclResource resource(allocator_);
  const auto no_wait = [](const void*) {
    ADD_FAILURE() << "the host waits";
    return false;
  };
  void* const block = resource.allocate(cuda::stream_ref(one_), 1000, 256);
  for (const vdnn_status status : {VDNN_OK, VDNN_DEVICE_LOST}) {
    finish_deallocation(status, allocator_, block, no_wait);
    EXPECT_EQ(figures().blocks.current, 1U) << "already given back, or the GPU is lost: " << status;
  }
  for (const vdnn_status status : {VDNN_INVALID_ARGUMENT, VDNN_DEVICE_ERROR, VDNN_NO_HOST_MEMORY}) {
    void* const mine = resource.allocate(cuda::stream_ref(one_), 2000, 256);
    finish_deallocation(status, allocator_, mine, no_wait);
    EXPECT_EQ(figures().blocks.current, 1U) << status;
  }
  EXPECT_EQ(statistics().freed_unordered, 3U);
  resource.deallocate(cuda::stream_ref(one_), block, 1000, 256);
}

// If the pool has no memory to record the free, the host waits. If the host cannot wait, the block stays in
// use.
TEST_F(CcclResourceTest, AnExhaustedHeapHasTheHostWait) {
  CcclResource resource(allocator_);
  void* const block = resource.allocate(cuda::stream_ref(one_), 1000, 256);
  for (const bool can_wait : {false, true}) {
    const void* waited_for = nullptr;
    std::optional<HeapFailure> exhausted(std::in_place, 1, HeapFailure::Kind::kFromThenOn);
    finish_deallocation(VDNN_NO_HOST_MEMORY, allocator_, block, [&](const void* of) {
      exhausted.reset();
      waited_for = of;
      return can_wait;
    });
    exhausted.reset();
    EXPECT_EQ(waited_for, block);
    EXPECT_EQ(figures().blocks.current, can_wait ? 0U : 1U);
  }
}

// Regression: a captured stream was treated as ended, and its block was given back without any order.
TEST(CcclResourceInCapture, AThreadsBlocksGoBackInTheOrderOfItsDefaultStream) {
  const auto fake = std::make_shared<FakeCuda>(FakeCudaOptions{.logical_memory = true});
  fake->set_device(0);
  vdnn_allocator* allocator = nullptr;
  ASSERT_EQ(create_allocator(make_cuda_pool_backend(0, fake), nullptr, &allocator), VDNN_OK);
  CcclResource resource(allocator);
  const cuda::stream_ref mine(cudaStreamPerThread);
  ASSERT_EQ(fake->stream_begin_capture(mine.get()), CudaStatus::kSuccess);
  void* const block = resource.allocate(mine, 1000);
  resource.deallocate(mine, block, 1000);
  EXPECT_EQ(resource.allocate(mine, 1000), block);
  resource.deallocate(mine, block, 1000);
  vdnn_allocator_statistics found{.version = VDNN_ALLOCATOR_VERSION};
  EXPECT_EQ(vdnn_allocator_get_statistics(allocator, &found), VDNN_OK);
  EXPECT_EQ(found.all.blocks.current, 0U);
  EXPECT_EQ(found.freed_unordered, 0U);
  CudaGraph graph = nullptr;
  EXPECT_EQ(fake->stream_end_capture(graph, mine.get()), CudaStatus::kSuccess);
  fake->graph_destroy(graph);
  EXPECT_EQ(vdnn_allocator_destroy(allocator), VDNN_OK);
  EXPECT_THAT(fake->misuses(), IsEmpty());
  EXPECT_THAT(fake->leaks(), IsEmpty());
}

TEST(AllocatorFailure, IsTheExceptionThatIsExpectedOfAnAllocator) {
  EXPECT_NO_THROW(throw_unless_ok(VDNN_OK));
  EXPECT_THROW(throw_unless_ok(VDNN_OUT_OF_MEMORY), AllocatorShortage);
  EXPECT_THROW(throw_unless_ok(VDNN_NO_HOST_MEMORY), std::bad_alloc);
  EXPECT_THROW(throw_unless_ok(VDNN_INVALID_ARGUMENT), std::invalid_argument);
  for (const vdnn_status status : {VDNN_DEVICE_ERROR, VDNN_DEVICE_LOST, VDNN_INTERNAL_ERROR}) {
    EXPECT_THROW(throw_unless_ok(status), std::runtime_error) << status;
  }
}

TEST(AllocatorFailure, KeepsAsMuchOfTheTextAsItHolds) {
  EXPECT_STREQ(AllocatorShortage("short").what(), "short");
  EXPECT_EQ(std::string(AllocatorShortage(std::string(2000, 'x').c_str()).what()), std::string(511, 'x'));
}

}  // namespace
}  // namespace vdnn
