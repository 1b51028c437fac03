// The stream pool over CUDA's calls. The fake runtime applies CUDA's own rules of order, counts leaks, and
// can refuse any call once.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "streams/cuda/cuda_pool_backend.h"
#include "tests/extent.h"
#include "tests/fakes/fake_cuda.h"
#include "vdnn/address_range.h"
#include "vdnn/forwarding_backend.h"
#include "vdnn/stream_pool.h"

namespace vdnn {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAre;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::size_t kStreams = 3;

// A program that calls CUDA itself and allocates from the pool.
class CudaProgram {
 public:
  CudaProgram(std::uint64_t seed, const StreamPoolOptions& options, bool virtual_memory = true)
      : random_(seed),
        cuda_(std::make_shared<FakeCuda>(FakeCudaOptions{.seed = seed,
                                                         .memory_bytes = 64 * kMiB,
                                                         .virtual_memory = virtual_memory,
                                                         .logical_memory = true})),
        options_(options) {
    cuda_->set_device(0);
    for (CudaStream& stream : streams_) {
      cuda_->stream_create(stream);
    }
  }
  ~CudaProgram() {
    for (const CudaStream stream : streams_) {
      cuda_->stream_destroy(stream);
    }
  }
  CudaProgram(const CudaProgram&) = delete;
  CudaProgram& operator=(const CudaProgram&) = delete;

  std::shared_ptr<FakeCuda> cuda() { return cuda_; }

  // Allocates, uses and frees blocks on all streams, and goes on after refusals. Frees all blocks at the end.
  void run(int steps) {
    std::unique_ptr<PoolBackend> backend;
    std::unique_ptr<StreamPool> pool;  // destroyed before the backend
    attempt([&] { backend = make_cuda_pool_backend(0, cuda_); });
    if (backend) {
      attempt([&] { pool = std::make_unique<StreamPool>(*backend, options_); });
    }
    if (pool) {
      for (int i = 0; i < steps; ++i) {
        step(*pool);
      }
      while (!live_.empty()) {
        free_one(*pool);
      }
      check(*pool);
    }
  }

 private:
  struct Block {
    AddressRange range;
    std::size_t stream = 0;
  };

  template <class Call>
  bool attempt(const Call& call) {
    try {
      call();
      return true;
    } catch (const Error& error) {
      refused_ += std::string(error.what()) + "\n";
      return false;
    }
  }

  void step(StreamPool& pool) {
    const std::size_t stream = random_() % kStreams;
    if (live_.size() < 4 || (live_.size() < 24 && random_() % 2 == 0)) {
      const std::uint64_t bytes = random_() % 3 == 0 ? (1 + random_() % 8) * kMiB : 1 + random_() % 100000;
      std::optional<AddressRange> range;
      attempt([&] { range = pool.allocate(bytes, streams_[stream]); });
      if (range) {
        launch(*range, stream);
        live_.push_back({.range = *range, .stream = stream});
      }
    } else if (random_() % 16 == 0) {
      end_stream(pool, stream);
    } else if (random_() % 32 == 0) {
      attempt([&] { pool.trim(16 * kMiB); });
    } else {
      free_one(pool);
    }
  }

  void launch(AddressRange range, std::size_t stream) {
    const Access access{.range = range, .version = 0};
    FakeCuda::launch(streams_[stream], [] {}, {.name = "kernel", .reads = {}, .writes = {&access, 1}});
  }

  // Tells the pool of some readers. Frees some blocks on another stream, after an event of the program's own.
  void free_one(StreamPool& pool) {
    if (live_.empty()) {
      return;
    }
    std::swap(live_[random_() % live_.size()], live_.back());
    const Block block = live_.back();
    live_.pop_back();
    const std::uint64_t address = block.range.begin;
    const std::size_t other = random_() % kStreams;
    bool elsewhere = false;
    if (other != block.stream && random_() % 2 == 0 && behind(other, block.stream)) {
      launch(block.range, other);
      elsewhere = random_() % 2 == 0 || !attempt([&] { pool.used_on(address, streams_[other]); });
    }
    // A refused free changes nothing, so the program can repeat it.
    const auto free = [&] { elsewhere ? pool.free(address, streams_[other]) : pool.free(address); };
    if (!attempt(free)) {
      EXPECT_TRUE(attempt(free)) << refused_;
    }
  }

  // Orders `stream` after `before`. Returns false if a call was refused.
  bool behind(std::size_t stream, std::size_t before) {
    CudaEvent event = nullptr;
    if (cuda_->event_create(event, {}) != CudaStatus::kSuccess) {
      return false;
    }
    const bool done = cuda_->event_record(event, streams_[before]) == CudaStatus::kSuccess &&
                      cuda_->stream_wait_event(streams_[stream], event) == CudaStatus::kSuccess;
    cuda_->event_destroy(event);
    return done;
  }

  // Ends the stream, with or without notice to the pool, and replaces it.
  void end_stream(StreamPool& pool, std::size_t stream) {
    CudaStream fresh = nullptr;
    if (cuda_->stream_create(fresh) != CudaStatus::kSuccess) {
      return;
    }
    if (random_() % 2 == 0) {
      attempt([&] { pool.forget(streams_[stream]); });
    }
    cuda_->stream_destroy(streams_[stream]);
    streams_[stream] = fresh;
    // Blocks of the ended stream belong to no other stream, so the program frees them once all work is done.
    if (std::ranges::find(live_, stream, &Block::stream) == live_.end()) {
      return;
    }
    while (cuda_->device_synchronize() != CudaStatus::kSuccess) {
    }
    std::erase_if(live_, [&](const Block& block) {
      const auto free = [&] { pool.free_idle(block.range.begin); };
      return block.stream == stream && (attempt(free) || attempt(free));
    });
  }

  void check(const StreamPool& pool) {
    const StreamPoolStatistics statistics = pool.statistics();
    EXPECT_EQ(statistics.all.blocks.current, 0U);
    EXPECT_EQ(statistics.all.allocated.current, 0U);
    // `reserved` includes memory that CUDA refused to take back, mapped or not.
    std::uint64_t free = 0;
    std::uint64_t total = 0;
    if (cuda_->memory_info(free, total) == CudaStatus::kSuccess) {
      EXPECT_EQ(statistics.all.reserved.current, total - free);
    }
    EXPECT_LE(statistics.all.reserved.peak, options_.budget_bytes);
  }

  std::mt19937_64 random_;
  std::shared_ptr<FakeCuda> cuda_;
  const StreamPoolOptions options_;
  std::array<CudaStream, kStreams> streams_{};
  std::vector<Block> live_;
  std::string refused_;
};

std::string texts(const std::vector<SimFinding>& findings) {
  return findings.empty() ? "" : findings.front().text;
}

StreamPoolOptions options_of(std::uint64_t seed) {
  return {.budget_bytes = seed % 2 == 0 ? 64 * kMiB : 24 * kMiB,
          .high_water_bytes = seed % 3 == 0 ? 16 * kMiB : 0,
          .small_bytes = kMiB / 16,
          .cache_bytes = kMiB / 4};
}

// Runs a program and expects no race, misuse or leak, its destruction included.
void expect_sound(std::unique_ptr<CudaProgram> program, int steps) {
  const std::shared_ptr<FakeCuda> cuda = program->cuda();
  program->run(steps);
  program.reset();
  EXPECT_EQ(texts(cuda->findings()), "") << cuda->failed_call();
  EXPECT_THAT(cuda->misuses(), IsEmpty()) << cuda->failed_call();
  EXPECT_THAT(cuda->leaks(), IsEmpty()) << cuda->failed_call();
  // Regression: all events had the flag cudaEventBlockingSync. With it, waits of the host need little CPU,
  // but waits of streams and queries are slow.
  EXPECT_THAT(cuda->dear_events(), IsEmpty());
}

TEST(StreamPoolCuda, ProgramsAreInOrderByCudasOwnRulesAndNothingLeaks) {
  const std::uint64_t seeds = testing::extent({.usual = 100, .under_sanitizers = 20, .in_long_run = 2000});
  std::uint64_t waits = 0;
  for (std::uint64_t seed = 0; seed < seeds && !HasFailure(); ++seed) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, "seed " + std::to_string(seed));
    auto program = std::make_unique<CudaProgram>(seed, options_of(seed));
    const std::shared_ptr<FakeCuda> cuda = program->cuda();
    expect_sound(std::move(program), 300);
    waits += cuda->calls("cudaStreamWaitEvent");
  }
  EXPECT_GT(waits, 10 * seeds);
}

// Each call, the program's own included, is refused once. The pool throws a typed exception and goes on; no
// memory is used without order, and nothing leaks.
TEST(StreamPoolCuda, AnyCallMayBeRefusedOnce) {
  const std::uint64_t seeds = testing::extent({.usual = 2, .under_sanitizers = 1, .in_long_run = 8});
  std::set<std::string> refused_calls;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    // Lack of memory, and an error that CUDA may return from any call.
    for (const CudaStatus status : {CudaStatus::kMemoryAllocation, CudaStatus::kNotSupported}) {
      bool refused = true;
      for (std::uint64_t nth = 1 + seed; refused && !HasFailure(); ++nth) {
        const ::testing::ScopedTrace trace(__FILE__, __LINE__,
                                           "seed " + std::to_string(seed) + ", call " + std::to_string(nth) +
                                               ", status " + std::to_string(static_cast<int>(status)));
        auto program = std::make_unique<CudaProgram>(seed, options_of(seed));
        const std::shared_ptr<FakeCuda> cuda = program->cuda();
        cuda->fail_call(nth, status);
        expect_sound(std::move(program), 120);
        refused = !cuda->failed_call().empty();
        refused_calls.insert(cuda->failed_call());
      }
    }
  }
  EXPECT_THAT(refused_calls,
              IsSupersetOf({"cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap",
                            "cudaStreamGetId", "cudaEventCreateWithFlags", "cudaEventRecord",
                            "cudaStreamWaitEvent", "cudaDeviceSynchronize"}));
}

class OnCuda : public ::testing::Test {
 protected:
  OnCuda() {
    cuda_->set_device(0);
    for (CudaStream& stream : streams_) {
      cuda_->stream_create(stream);
    }
    backend_ = make_cuda_pool_backend(0, cuda_);
    pool_ = std::make_unique<StreamPool>(*backend_, StreamPoolOptions{});
  }
  ~OnCuda() override {
    pool_.reset();
    backend_.reset();
    for (const CudaStream stream : streams_) {
      cuda_->stream_destroy(stream);
    }
    EXPECT_THAT(cuda_->misuses(), IsEmpty());
    EXPECT_THAT(cuda_->leaks(), IsEmpty());
    EXPECT_THAT(cuda_->dear_events(), IsEmpty());
  }
  OnCuda(const OnCuda&) = delete;
  OnCuda& operator=(const OnCuda&) = delete;

  std::shared_ptr<FakeCuda> cuda_ = std::make_shared<FakeCuda>(
      FakeCudaOptions{.memory_bytes = 64 * kMiB, .used_bytes = 16 * kMiB, .logical_memory = true});
  std::array<CudaStream, 2> streams_{};
  std::unique_ptr<PoolBackend> backend_;
  std::unique_ptr<StreamPool> pool_;
};

TEST_F(OnCuda, ThePoolMayTakeWhatIsFree) {
  EXPECT_EQ(backend_->properties().memory_bytes, 48 * kMiB);
  EXPECT_EQ(backend_->properties().granule_bytes, 2 * kMiB);
  EXPECT_TRUE(pool_->allocate(48 * kMiB, streams_[0]));
  EXPECT_FALSE(pool_->allocate(1, streams_[0]));
}

// The budget would allow the request, but other programs have taken the GPU's memory, so the pool moves its
// own granules.
TEST_F(OnCuda, WhenTheGpuHasNoMoreThePoolMovesWhatItHas) {
  std::vector<AddressRange> blocks;
  blocks.reserve(4);
  for (int i = 0; i < 4; ++i) {
    blocks.push_back(pool_->allocate(4 * kMiB, streams_[0]).value());
  }
  cuda_->take_memory(0, 32 * kMiB);
  pool_->free(blocks[0].begin);
  pool_->free(blocks[2].begin);
  EXPECT_TRUE(pool_->allocate(8 * kMiB, streams_[1]));
  EXPECT_FALSE(pool_->allocate(2 * kMiB, streams_[1]));
  EXPECT_EQ(cuda_->mapped_bytes(), 16 * kMiB);
  EXPECT_EQ(pool_->statistics().all.reserved.peak, 16 * kMiB);
}

TEST_F(OnCuda, AFreeMakesNoCall) {
  const AddressRange small = pool_->allocate(1000, streams_[0]).value();
  const AddressRange large = pool_->allocate(4 * kMiB, streams_[0]).value();
  const std::uint64_t calls = cuda_->calls();
  pool_->free(small.begin);
  pool_->free(large.begin);
  EXPECT_EQ(cuda_->calls(), calls);
  pool_->allocate(1000, streams_[0]);
  EXPECT_EQ(cuda_->calls(), calls + 2) << "one asks for the thread's context, one for the stream's id";
}

TEST_F(OnCuda, IfEndsAreToldThePoolAsksForNoStreamId) {
  StreamPool pool(*backend_, {.budget_bytes = 16 * kMiB, .ends_are_told = true});
  pool.free(pool.allocate(1000, streams_[0])->begin);
  const std::uint64_t calls = cuda_->calls();
  pool.free(pool.allocate(1000, streams_[0])->begin, streams_[0]);
  EXPECT_EQ(cuda_->calls(), calls);
}

TEST_F(OnCuda, CapturesAreNotCrossedAndNotDisturbed) {
  const AddressRange other = pool_->allocate(4 * kMiB, streams_[1]).value();
  pool_->free(other.begin);
  ASSERT_EQ(cuda_->stream_begin_capture(streams_[0]), CudaStatus::kSuccess);
  // Fresh memory needs no event, and mapping it is no node of the graph.
  const auto fresh = pool_->allocate(4 * kMiB, streams_[0]);
  const auto small = pool_->allocate(1000, streams_[0]);
  ASSERT_TRUE(fresh && small);
  EXPECT_NE(fresh->begin, other.begin);
  pool_->free(fresh->begin);
  pool_->free(small->begin);
  try {
    pool_->allocate(48 * kMiB, streams_[0]);
    ADD_FAILURE() << "the capture would have to wait for an event from before it";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("is being captured"));
  }
  EXPECT_THROW(pool_->allocate(48 * kMiB, streams_[1]), InvalidArgument) << "the event would be in the graph";
  CudaGraph graph = nullptr;
  EXPECT_EQ(cuda_->stream_end_capture(graph, streams_[0]), CudaStatus::kSuccess);
  cuda_->graph_destroy(graph);
  EXPECT_TRUE(pool_->allocate(48 * kMiB, streams_[1]));
}

// Regression: a stream outside any capture was refused a block that a captured stream had freed, although
// there was unused memory. A captured stream was refused, too, if the unused memory came after a small hole.
TEST_F(OnCuda, NeitherOtherCapturesNorHolesCauseARefusal) {
  const auto first = pool_->allocate(2 * kMiB, streams_[0]);
  const auto second = pool_->allocate(2 * kMiB, streams_[0]);
  pool_->free(first->begin);
  pool_->trim();  // a hole of one granule
  ASSERT_EQ(cuda_->stream_begin_capture(streams_[0]), CudaStatus::kSuccess);
  const auto captured = pool_->allocate(6 * kMiB, streams_[0]);
  ASSERT_TRUE(captured);
  pool_->free(captured->begin);
  const auto other = pool_->allocate(6 * kMiB, streams_[1]);
  ASSERT_TRUE(other);
  EXPECT_NE(other, captured);
  EXPECT_EQ(pool_->trim(), 0U) << "the free memory must wait for the capture";
  CudaGraph graph = nullptr;
  EXPECT_EQ(cuda_->stream_end_capture(graph, streams_[0]), CudaStatus::kSuccess);
  cuda_->graph_destroy(graph);
  EXPECT_EQ(pool_->trim(), 6 * kMiB);
  pool_->free(second->begin);
}

// To settle a stream that vanished without notice, the pool waits for the whole GPU, which would invalidate a
// capture. Regression: the pool did so during a capture instead of afterwards.
TEST_F(OnCuda, NothingWaitsForTheGpuWhileAStreamIsCaptured) {
  ASSERT_TRUE(pool_->allocate(2 * kMiB, streams_[1])) << "the pool knows both streams";
  ASSERT_TRUE(pool_->allocate(2 * kMiB, streams_[0]));
  CudaStream gone = nullptr;
  cuda_->stream_create(gone);
  const auto left = pool_->allocate(20 * kMiB, gone);
  ASSERT_TRUE(left);
  pool_->free(left->begin);
  cuda_->stream_destroy(gone);
  ASSERT_EQ(cuda_->stream_begin_capture(streams_[0]), CudaStatus::kSuccess);
  const auto fresh = pool_->allocate(20 * kMiB, streams_[1]);
  ASSERT_TRUE(fresh);
  EXPECT_NE(fresh, left);
  EXPECT_EQ(pool_->trim(), 0U);
  EXPECT_THROW(pool_->allocate(18 * kMiB, streams_[1]), InvalidArgument);
  EXPECT_THROW(pool_->allocate_ready(18 * kMiB), InvalidArgument);
  CudaGraph graph = nullptr;
  EXPECT_EQ(cuda_->stream_end_capture(graph, streams_[0]), CudaStatus::kSuccess);
  cuda_->graph_destroy(graph);
  EXPECT_TRUE(pool_->allocate(18 * kMiB, streams_[1]));
}

// A captured stream that the pool has never seen. CUDA reveals the capture if the stream is a blocking one;
// otherwise the program must report it to the pool.
TEST_F(OnCuda, NorWhileAnyOtherStreamIs) {
  CudaStream blocking = nullptr;
  cuda_->stream_create_blocking(blocking);
  bool told = false;
  const auto telling = make_cuda_pool_backend(0, cuda_, {.is_capturing_any = [&told] { return told; }});
  telling->synchronize_all();
  ASSERT_EQ(cuda_->stream_begin_capture(blocking), CudaStatus::kSuccess);
  EXPECT_THROW(backend_->synchronize_all(), CaptureConflict);
  EXPECT_THROW(telling->synchronize_all(), CaptureConflict);
  CudaGraph graph = nullptr;
  EXPECT_EQ(cuda_->stream_end_capture(graph, blocking), CudaStatus::kSuccess);
  cuda_->graph_destroy(graph);
  told = true;
  ASSERT_EQ(cuda_->stream_begin_capture(streams_[0]), CudaStatus::kSuccess);
  EXPECT_THROW(telling->synchronize_all(), CaptureConflict);
  EXPECT_EQ(cuda_->stream_end_capture(graph, streams_[0]), CudaStatus::kSuccess);
  cuda_->graph_destroy(graph);
  cuda_->stream_destroy(blocking);
}

TEST_F(OnCuda, APoolThatHasNothingEndsWithoutWaiting) {
  auto empty = std::make_unique<StreamPool>(*backend_, StreamPoolOptions{});
  const auto block = empty->allocate(2 * kMiB, streams_[1]);
  empty->free(block->begin);
  EXPECT_EQ(empty->trim(), 2 * kMiB);
  ASSERT_EQ(cuda_->stream_begin_capture(streams_[0]), CudaStatus::kSuccess);
  empty.reset();
  CudaGraph graph = nullptr;
  EXPECT_EQ(cuda_->stream_end_capture(graph, streams_[0]), CudaStatus::kSuccess);
  cuda_->graph_destroy(graph);
}

// The pool waits for events of the streams that are not captured, and never for the whole GPU.
TEST_F(OnCuda, APoolThatEndsBesideACaptureWaitsForItsOtherStreams) {
  CudaStream blocking = nullptr;
  cuda_->stream_create_blocking(blocking);
  auto pool = std::make_unique<StreamPool>(*backend_, StreamPoolOptions{});
  const AddressRange block = pool->allocate(2 * kMiB, streams_[1]).value();
  ASSERT_EQ(cuda_->stream_begin_capture(blocking), CudaStatus::kSuccess);
  const Access access{.range = block};
  FakeCuda::launch(streams_[1], [] {}, {.name = "kernel", .reads = {}, .writes = {&access, 1}});
  pool.reset();
  CudaGraph graph = nullptr;
  EXPECT_EQ(cuda_->stream_end_capture(graph, blocking), CudaStatus::kSuccess);
  cuda_->graph_destroy(graph);
  cuda_->stream_destroy(blocking);
  EXPECT_THAT(cuda_->findings(), IsEmpty());
}

// A pool that is destroyed during a capture, while work uses the pool's memory. The backend outlives the pool
// and the work.
class PoolBesideCapture : public OnCuda {
 protected:
  PoolBesideCapture() { cuda_->stream_create_blocking(captured_); }
  ~PoolBesideCapture() override {
    EXPECT_EQ(cuda_->mapped_bytes(), 2 * kMiB) << "nothing shows that the memory is idle";
    CudaGraph graph = nullptr;
    EXPECT_EQ(cuda_->stream_end_capture(graph, captured_), CudaStatus::kSuccess);
    cuda_->graph_destroy(graph);
    cuda_->stream_destroy(captured_);
    backend_->synchronize_all();
    EXPECT_EQ(cuda_->mapped_bytes(), 0U) << "after the wait the memory goes back";
    EXPECT_THAT(cuda_->findings(), IsEmpty());
  }
  PoolBesideCapture(const PoolBesideCapture&) = delete;
  PoolBesideCapture& operator=(const PoolBesideCapture&) = delete;

  AddressRange used_block(CudaStream stream) {
    const AddressRange block = dying_->allocate(2 * kMiB, stream).value();
    const Access access{.range = block};
    FakeCuda::launch(stream, [] {}, {.name = "kernel", .reads = {}, .writes = {&access, 1}});
    return block;
  }
  void die_beside_capture() {
    ASSERT_EQ(cuda_->stream_begin_capture(captured_), CudaStatus::kSuccess);
    dying_.reset();
  }

  CudaStream captured_ = nullptr;
  std::unique_ptr<StreamPool> dying_ = std::make_unique<StreamPool>(*backend_, StreamPoolOptions{});
};

// Regression, in this test and the next four: memory that was still in use was unmapped.
TEST_F(PoolBesideCapture, KeepsWhatAStreamUsesThatHasGone) {
  CudaStream gone = nullptr;
  cuda_->stream_create(gone);
  dying_->free(used_block(gone).begin);
  cuda_->stream_destroy(gone);
  die_beside_capture();
}

TEST_F(PoolBesideCapture, KeepsWhatNobodyKnowsTheUsersOf) {
  dying_->free_unordered(used_block(streams_[0]).begin);
  die_beside_capture();
}

TEST_F(PoolBesideCapture, KeepsWhatTheCapturedStreamUses) {
  dying_->free(used_block(captured_).begin);
  die_beside_capture();
}

TEST_F(PoolBesideCapture, KeepsWhatAnybodyMayUse) {
  const AddressRange block = dying_->allocate_ready(2 * kMiB).value();
  const Access access{.range = block};
  FakeCuda::launch(streams_[0], [] {}, {.name = "kernel", .reads = {}, .writes = {&access, 1}});
  die_beside_capture();
}

// An error of one stream does not affect the other streams.
TEST_F(PoolBesideCapture, KeepsWhatAStreamUsesThatCannotBeWaitedFor) {
  class Refusing final : public ForwardingBackend {
   public:
    Refusing(PoolBackend& target, StreamHandle refused) : ForwardingBackend(target), refused_(refused) {}
    EventHandle record(StreamHandle stream) override {
      if (stream == refused_) {
        throw DeviceError("refused");
      }
      return ForwardingBackend::record(stream);
    }

   private:
    const StreamHandle refused_;
  } refusing(*backend_, streams_[0]);
  dying_ = std::make_unique<StreamPool>(refusing, StreamPoolOptions{});
  used_block(streams_[0]);
  die_beside_capture();
}

// Work is submitted after the GPU was waited for. Regression: the pool took the memory of this work for idle,
// and unmapped it.
TEST_F(PoolBesideCapture, KeepsWhatWasLeftAfterTheGpuWasWaitedFor) {
  const AddressRange block = dying_->allocate(2 * kMiB, streams_[0]).value();
  cuda_->after_next_synchronize([&] {
    const Access access{.range = block};
    FakeCuda::launch(streams_[0], [] {}, {.name = "kernel", .reads = {}, .writes = {&access, 1}});
    dying_->free_unordered(block.begin);
    die_beside_capture();
  });
  backend_->synchronize_all();
}

// CUDA refuses the wait for the GPU and ends the capture. Regression: the pool unmapped its memory
// nevertheless.
TEST_F(OnCuda, APoolThatEndsBesideACaptureThatNobodyTellsOfUnmapsNothingInUse) {
  auto pool = std::make_unique<StreamPool>(*backend_, StreamPoolOptions{});
  const AddressRange block = pool->allocate(2 * kMiB, streams_[0]).value();
  const Access access{.range = block};
  FakeCuda::launch(streams_[0], [] {}, {.name = "kernel", .reads = {}, .writes = {&access, 1}});
  ASSERT_EQ(cuda_->stream_begin_capture(streams_[1]), CudaStatus::kSuccess);
  pool.reset();
  CudaGraph graph = nullptr;
  EXPECT_EQ(cuda_->stream_end_capture(graph, streams_[1]), CudaStatus::kStreamCaptureInvalidated);
}

// If nothing else reveals the capture, the pool's own streams do. Regression: the capture was invalidated.
TEST_F(OnCuda, APoolThatEndsWhileItsStreamIsCapturedKeepsItsMemory) {
  auto pool = std::make_unique<StreamPool>(*backend_, StreamPoolOptions{});
  pool->free(pool->allocate(2 * kMiB, streams_[0])->begin);
  ASSERT_EQ(cuda_->stream_begin_capture(streams_[0]), CudaStatus::kSuccess);
  pool.reset();
  CudaGraph graph = nullptr;
  EXPECT_EQ(cuda_->stream_end_capture(graph, streams_[0]), CudaStatus::kSuccess);
  cuda_->graph_destroy(graph);
  EXPECT_EQ(cuda_->mapped_bytes(), 2 * kMiB);
  backend_->synchronize_all();
}

// Once the backend is destroyed, too, no wait is possible any more.
TEST(PoolBesideCaptureForGood, MemoryStaysWhereItsBackendDies) {
  const auto cuda =
      std::make_shared<FakeCuda>(FakeCudaOptions{.memory_bytes = 64 * kMiB, .logical_memory = true});
  cuda->set_device(0);
  CudaStream captured = nullptr;
  cuda->stream_create_blocking(captured);
  {
    const auto backend = make_cuda_pool_backend(0, cuda);
    StreamPool pool(*backend, {});
    pool.free_unordered(pool.allocate(2 * kMiB, captured)->begin);
    ASSERT_EQ(cuda->stream_begin_capture(captured), CudaStatus::kSuccess);
  }
  CudaGraph graph = nullptr;
  EXPECT_EQ(cuda->stream_end_capture(graph, captured), CudaStatus::kSuccess);
  cuda->graph_destroy(graph);
  cuda->stream_destroy(captured);
  EXPECT_THAT(cuda->misuses(), IsEmpty());
  EXPECT_THAT(cuda->leaks(),
              UnorderedElementsAre(HasSubstr("a reservation of"), "a mapping of 2 MiB (2097152 bytes)"));
}

// The thread cannot record an event on the captured stream, but can itself use the block again. Regression:
// the free was refused.
TEST_F(OnCuda, AThreadFreesOnItsDefaultStreamWhileThatIsCaptured) {
  const CudaStream per_thread = pointer_to<void>(2);
  ASSERT_EQ(cuda_->stream_begin_capture(per_thread), CudaStatus::kSuccess);
  const AddressRange block = pool_->allocate(2 * kMiB, per_thread).value();
  EXPECT_NO_THROW(pool_->free(block.begin, per_thread));
  EXPECT_EQ(pool_->allocate(2 * kMiB, per_thread), block);
  EXPECT_NO_THROW(pool_->free(block.begin));
  EXPECT_NE(pool_->allocate(2 * kMiB, streams_[0]), block) << "the other stream would have to wait";
  CudaGraph graph = nullptr;
  EXPECT_EQ(cuda_->stream_end_capture(graph, per_thread), CudaStatus::kSuccess);
  cuda_->graph_destroy(graph);
  EXPECT_EQ(pool_->allocate(2 * kMiB, streams_[1]), block);
  EXPECT_EQ(pool_->statistics().freed_unordered, 0U);
}

// Work on the legacy stream would wait for the blocking stream, so CUDA forbids it during the capture. This
// is no failure of the device. Regression: it was reported as one, "cudaStreamIsCapturing(): error 906".
TEST_F(OnCuda, TheLegacyStreamIsUnusableWhileABlockingStreamIsCaptured) {
  CudaStream blocking = nullptr;
  cuda_->stream_create_blocking(blocking);
  const AddressRange other = pool_->allocate(20 * kMiB, streams_[1]).value();
  pool_->free(other.begin);
  ASSERT_EQ(cuda_->stream_begin_capture(blocking), CudaStatus::kSuccess);
  const auto fresh = pool_->allocate(20 * kMiB, nullptr);
  ASSERT_TRUE(fresh);
  EXPECT_NE(fresh->begin, other.begin);
  EXPECT_THROW(pool_->allocate(20 * kMiB, nullptr), CaptureConflict);
  CudaGraph graph = nullptr;
  EXPECT_EQ(cuda_->stream_end_capture(graph, blocking), CudaStatus::kSuccess) << "the capture stays valid";
  cuda_->graph_destroy(graph);
  EXPECT_TRUE(pool_->allocate(20 * kMiB, nullptr));
  cuda_->stream_destroy(blocking);
}

// Memory of cuda:0, used by work of all three GPUs.
class StreamPoolPeers : public ::testing::Test {
 protected:
  StreamPoolPeers() {
    for (int ordinal = 0; ordinal < 3; ++ordinal) {
      cuda_->set_device(ordinal);
      cuda_->stream_create(streams_.at(static_cast<std::size_t>(ordinal)));
    }
    cuda_->set_device(0);
  }
  ~StreamPoolPeers() override {
    for (const CudaStream stream : streams_) {
      cuda_->stream_destroy(stream);
    }
    EXPECT_THAT(cuda_->misuses(), IsEmpty());
    EXPECT_THAT(cuda_->leaks(), IsEmpty());
  }
  StreamPoolPeers(const StreamPoolPeers&) = delete;
  StreamPoolPeers& operator=(const StreamPoolPeers&) = delete;

  // Runs a kernel on each GPU in turn, and returns the first error.
  std::string read(AddressRange range) {
    for (int ordinal = 0; ordinal < 3; ++ordinal) {
      cuda_->set_device(ordinal);
      const Access access{.range = range};
      const CudaStream stream = streams_.at(static_cast<std::size_t>(ordinal));
      FakeCuda::launch(stream, [] {}, {.name = "read", .reads = {&access, 1}, .writes = {}});
      cuda_->stream_synchronize(stream);
    }
    cuda_->set_device(0);
    return texts(cuda_->findings());
  }

  std::shared_ptr<FakeCuda> cuda_ = std::make_shared<FakeCuda>(
      FakeCudaOptions{.gpus = 3, .memory_bytes = 64 * kMiB, .logical_memory = true});
  std::array<CudaStream, 3> streams_{};
};

// All these GPUs have access to the memory at home and in views. Regression: only the pool's own GPU had
// access.
TEST_F(StreamPoolPeers, GpusThatReachTheMemoryMayTouchIt) {
  const auto backend = make_cuda_pool_backend(0, cuda_);
  StreamPool pool(*backend, {.budget_bytes = 16 * kMiB});
  std::vector<AddressRange> blocks;
  blocks.reserve(4);
  for (int i = 0; i < 4; ++i) {
    blocks.push_back(pool.allocate(4 * kMiB, streams_[0]).value());
    EXPECT_EQ(read(blocks.back()), "");
  }
  pool.free(blocks[0].begin);
  pool.free(blocks[2].begin);
  EXPECT_EQ(read(pool.allocate(8 * kMiB, streams_[0]).value()), "");
}

TEST_F(StreamPoolPeers, UnlessTheyAreToldNotTo) {
  const auto backend = make_cuda_pool_backend(0, cuda_, {.peer_access = false});
  StreamPool pool(*backend, {.budget_bytes = 16 * kMiB});
  EXPECT_THAT(read(pool.allocate(4 * kMiB, streams_[0]).value()), HasSubstr("no access to it"));
}

TEST(StreamPoolWithoutPeers, GpusThatReachNoOtherAskForNoAccess) {
  const auto cuda = std::make_shared<FakeCuda>(
      FakeCudaOptions{.gpus = 2, .memory_bytes = 64 * kMiB, .peers = false, .logical_memory = true});
  cuda->set_device(0);
  {
    const auto backend = make_cuda_pool_backend(0, cuda);
    StreamPool pool(*backend, {.budget_bytes = 16 * kMiB});
    EXPECT_TRUE(pool.allocate(4 * kMiB, nullptr));
  }
  EXPECT_THAT(cuda->misuses(), IsEmpty());
}

// The pool requests each handle type and capability that the GPU supports, and no other.
TEST(StreamPoolSharing, MemoryIsCreatedToBeExportedAndRegistered) {
  for (const bool can : {false, true}) {
    const auto cuda = std::make_shared<FakeCuda>(
        FakeCudaOptions{.memory_bytes = 64 * kMiB, .file_handles = can, .rdma = can, .logical_memory = true});
    cuda->set_device(0);
    const auto backend = make_cuda_pool_backend(0, cuda);
    StreamPool pool(*backend, {.budget_bytes = 16 * kMiB});
    const AddressRange block = pool.allocate(4 * kMiB, nullptr).value();
    AddressRange mapped;
    EXPECT_EQ(cuda->export_allocation(mapped, block.begin),
              can ? CudaStatus::kSuccess : CudaStatus::kInvalidValue);
    EXPECT_EQ(mapped.begin, block.begin);
    EXPECT_EQ(cuda->register_for_rdma(block), can ? CudaStatus::kSuccess : CudaStatus::kInvalidValue);
    EXPECT_THAT(cuda->misuses(), IsEmpty());
  }
}

// Without virtual memory, the pool allocates its budget as one piece.
TEST(StreamPoolWithoutVirtualMemory, TakesItsBudgetAtOnce) {
  const auto cuda = std::make_shared<FakeCuda>(
      FakeCudaOptions{.memory_bytes = 64 * kMiB, .virtual_memory = false, .logical_memory = true});
  cuda->set_device(0);
  CudaStream stream = nullptr;
  cuda->stream_create(stream);
  {
    const auto backend = make_cuda_pool_backend(0, cuda);
    EXPECT_EQ(backend->properties().memory_bytes, 60 * kMiB);
    StreamPool pool(*backend, {.budget_bytes = 32 * kMiB});
    EXPECT_EQ(cuda->calls("cudaMalloc"), 1U);
    EXPECT_EQ(pool.statistics().all.reserved.current, 32 * kMiB);
    EXPECT_EQ(pool.statistics().of(BlockKind::kLarge).reserved.current, 32 * kMiB);
    const auto first = pool.allocate(30 * kMiB, stream);
    ASSERT_TRUE(first);
    EXPECT_TRUE(pool.allocate(1000, stream));
    EXPECT_FALSE(pool.allocate(2 * kMiB, stream));
    EXPECT_EQ(pool.shortage(2 * kMiB).budget, 32 * kMiB);
    EXPECT_LT(pool.shortage(2 * kMiB).would_have_fitted, 2 * kMiB);
    pool.free(first->begin);
    EXPECT_EQ(pool.allocate(30 * kMiB, stream), first);
    pool.free(first->begin);
    EXPECT_EQ(pool.trim(), 0U);
    EXPECT_EQ(pool.statistics().growths, 0U);
    EXPECT_THROW(StreamPool(*backend, {}), OutOfMemory) << "another pool has half of it";
    EXPECT_EQ(cuda->calls("cudaMalloc"), 2U);
  }
  cuda->stream_destroy(stream);
  EXPECT_THAT(cuda->misuses(), IsEmpty());
  EXPECT_THAT(cuda->leaks(), IsEmpty());
}

TEST(StreamPoolWithoutVirtualMemory, ProgramsAreInOrderAndNothingLeaksWhateverCallIsRefused) {
  const std::uint64_t seeds = testing::extent({.usual = 40, .under_sanitizers = 10, .in_long_run = 400});
  for (std::uint64_t seed = 0; seed < seeds && !HasFailure(); ++seed) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, "seed " + std::to_string(seed));
    auto program = std::make_unique<CudaProgram>(seed, options_of(seed), /*virtual_memory=*/false);
    program->cuda()->fail_call(1 + 7 * seed, CudaStatus::kMemoryAllocation);
    expect_sound(std::move(program), 200);
  }
}

// Regression: the pool cleared the thread's last error after queries of events that were not ready. Such
// queries set no error (CUDA Programming Guide, "Error Checking"). It also cleared the last error after
// failures of the driver's calls. A program that checked its launches later never saw its own error.
TEST(StreamPoolOnCuda, AnErrorOfTheProgramStaysForItsOwnCheck) {
  constexpr std::uint64_t kBudget = 64 * kMiB;
  const auto cuda =
      std::make_shared<FakeCuda>(FakeCudaOptions{.memory_bytes = kBudget, .logical_memory = true});
  ASSERT_EQ(cuda->set_device(0), CudaStatus::kSuccess);
  CudaStream stream = nullptr;
  ASSERT_EQ(cuda->stream_create(stream), CudaStatus::kSuccess);
  {
    const auto backend = make_cuda_pool_backend(0, cuda);
    FakeCuda::launch(stream, [] {});
    const EventHandle event = backend->record(stream);
    cuda->fail_call(1, CudaStatus::kInvalidDevice, "cudaMalloc");
    std::uint64_t address = 0;
    EXPECT_EQ(cuda->malloc(address, kMiB), CudaStatus::kInvalidDevice);
    EXPECT_FALSE(backend->reached(event));
    EXPECT_EQ(cuda->peek_at_last_error(), CudaStatus::kInvalidDevice) << "after a query";
    std::vector<GranuleHandle> granules;
    EXPECT_THROW(
        for (std::uint64_t i = 0; i <= kBudget / backend->properties().granule_bytes;
             ++i) { granules.push_back(backend->create_granule()); },
        OutOfMemory);
    EXPECT_EQ(cuda->get_last_error(), CudaStatus::kInvalidDevice) << "after a call of the driver";
    for (const GranuleHandle each : granules) {
      backend->destroy_granule(each);
    }
    backend->synchronize(event);
    backend->release(event);
  }
  EXPECT_EQ(cuda->stream_destroy(stream), CudaStatus::kSuccess);
  EXPECT_THAT(cuda->misuses(), IsEmpty());
}

// Regression: the pool left the primary context current. cudaSetDevice() makes it current in place of the
// program's own context, for example a green context.
TEST(StreamPoolOnCuda, AContextOfTheProgramsOwnStaysTheThreads) {
  const auto cuda = std::make_shared<FakeCuda>(
      FakeCudaOptions{.gpus = 2, .memory_bytes = 64 * kMiB, .logical_memory = true});
  for (const int gpu : {0, 1}) {
    const CudaContextHandle own = cuda->make_context(gpu);
    ASSERT_EQ(cuda->set_current_context(own), CudaStatus::kSuccess);
    const auto current = [&] {
      CudaContextHandle found = nullptr;
      EXPECT_EQ(cuda->current_context(found), CudaStatus::kSuccess);
      return found;
    };
    const auto backend = make_cuda_pool_backend(0, cuda);
    EXPECT_EQ(current(), own);
    backend->destroy_granule(backend->create_granule());
    EXPECT_EQ(current(), own);
    EXPECT_EQ(cuda->gpu_of_thread(), gpu);
  }
}

// Regression: the pool asked for a stream's id without setting the thread's GPU. For a thread without a GPU,
// the runtime then initialises the first GPU.
TEST(StreamPoolOnCuda, AThreadWithoutAGpuBeginsToUseNoOther) {
  const auto cuda = std::make_shared<FakeCuda>(
      FakeCudaOptions{.gpus = 2, .memory_bytes = 64 * kMiB, .logical_memory = true});
  ASSERT_EQ(cuda->set_device(1), CudaStatus::kSuccess);
  CudaStream stream = nullptr;
  ASSERT_EQ(cuda->stream_create(stream), CudaStatus::kSuccess);
  const auto backend = make_cuda_pool_backend(1, cuda);
  StreamPool pool(*backend, {.budget_bytes = 16 * kMiB});
  std::thread([&] {
    const std::optional<AddressRange> block = pool.allocate(1000, stream);
    ASSERT_TRUE(block);
    pool.free(block->begin, stream);
  }).join();
  EXPECT_FALSE(cuda->uses(0));
}

// Regression: the pool waited for a stream and gave memory back. While a capture runs in the mode
// cudaStreamCaptureModeGlobal, such calls of any other thread are forbidden and end the capture.
TEST(StreamPoolOnCuda, ItsEndLeavesCapturesOfOtherThreadsAlone) {
  const auto cuda =
      std::make_shared<FakeCuda>(FakeCudaOptions{.memory_bytes = 64 * kMiB, .logical_memory = true});
  ASSERT_EQ(cuda->set_device(0), CudaStatus::kSuccess);
  CudaStream stream = nullptr;
  CudaStream captured = nullptr;
  ASSERT_EQ(cuda->stream_create(stream), CudaStatus::kSuccess);
  ASSERT_EQ(cuda->stream_create(captured), CudaStatus::kSuccess);
  auto backend = make_cuda_pool_backend(0, cuda);
  FakeCuda::launch(stream, [] {});
  const EventHandle event = backend->record(stream);
  backend->synchronize(event);  // on a stream of the backend's own
  backend->release(event);
  backend->reserve(4 * kMiB);
  ASSERT_EQ(cuda->stream_begin_capture(captured, CaptureMode::kGlobal), CudaStatus::kSuccess);
  std::thread([&] { backend.reset(); }).join();
  CudaGraph graph = nullptr;
  EXPECT_EQ(cuda->stream_end_capture(graph, captured), CudaStatus::kSuccess);
  EXPECT_EQ(cuda->graph_destroy(graph), CudaStatus::kSuccess);
  cuda->stream_destroy(stream);
  cuda->stream_destroy(captured);
  EXPECT_THAT(cuda->leaks(), IsEmpty());
}

// Regression: after the driver's cudaErrorContextIsDestroyed, the pool treated the GPU as lost, and every
// later call of the pool failed.
TEST(StreamPoolOnCuda, AStreamThatHasGoneIsNoLostGpu) {
  for (const std::uint64_t seed : {0U, 1U}) {
    const auto cuda = std::make_shared<FakeCuda>(
        FakeCudaOptions{.seed = seed, .memory_bytes = 64 * kMiB, .logical_memory = true});
    ASSERT_EQ(cuda->set_device(0), CudaStatus::kSuccess);
    CudaStream stream = nullptr;
    ASSERT_EQ(cuda->stream_create(stream), CudaStatus::kSuccess);
    const auto backend = make_cuda_pool_backend(0, cuda);
    ASSERT_EQ(cuda->stream_destroy(stream), CudaStatus::kSuccess);
    EXPECT_THROW(backend->stream_id(stream), InvalidArgument);
    EXPECT_NO_THROW(backend->destroy_granule(backend->create_granule()));
    EXPECT_EQ(cuda->get_last_error(), CudaStatus::kSuccess);
  }
}

}  // namespace
}  // namespace vdnn
