#include "streams/cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <iostream>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <utility>

#include "tests/fakes/fake_cuda.h"
#include "tests/streams/device_conformance.h"
#include "tests/streams/memory_policy.h"
#include "vdnn/error.h"
#include "vdnn/sim_device.h"

namespace vdnn {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kGranule = 4 << 10;  // smaller than a real GPU's, so that tests are quick
constexpr std::uint64_t kBudget = 16 * kGranule;

FakeCudaOptions small_gpus(std::uint64_t seed) {
  return {.seed = seed, .gpus = 2, .granule_bytes = kGranule};
}

void expect_spotless(const FakeCuda& fake) {
  EXPECT_THAT(fake.misuses(), IsEmpty());
  EXPECT_THAT(fake.leaks(), IsEmpty());
  // Regression: all events were of the blocking kind, even those that only order streams.
  EXPECT_THAT(fake.dear_events(), IsEmpty());
  for (const SimFinding& finding : fake.findings()) {
    ADD_FAILURE() << finding.text;
  }
}

// A fake that fails the test on misuse, and on leaks at its end.
std::shared_ptr<FakeCuda> strict_fake(const FakeCudaOptions& options = small_gpus(0)) {
  return {new FakeCuda(options), [](const FakeCuda* fake) {
            expect_spotless(*fake);
            delete fake;
          }};
}

void launch(void* stream, std::function<void()> kernel) {
  EXPECT_EQ(FakeCuda::launch(stream, std::move(kernel)), CudaStatus::kSuccess);
}

DeviceFactory factory(const std::string& name, const FakeCudaOptions& gpus) {
  return {.name = name,
          .make =
              [gpus](std::uint64_t budget_bytes, std::uint64_t host_budget_bytes) {
                return make_cuda_device(
                    {.budget_bytes = budget_bytes, .host_budget_bytes = host_budget_bytes},
                    strict_fake(gpus));
              },
          .launch = launch};
}

DeviceFactory factory(std::uint64_t seed) {
  return factory("Seed" + std::to_string(seed), small_gpus(seed));
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceConformance,
                         testing::Values(factory(1), factory(2), factory(3), factory(4), factory(5),
                                         factory("WithoutVirtualMemory",
                                                 {.seed = 6, .virtual_memory = false})),
                         device_name);

std::unique_ptr<Device> make_device(std::shared_ptr<FakeCuda> fake, int ordinal = 1,
                                    std::uint64_t budget_bytes = kBudget) {
  return make_cuda_device({.ordinal = ordinal, .budget_bytes = budget_bytes, .host_budget_bytes = kBudget},
                          std::move(fake));
}

std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

Point submit(Device& device, StreamId stream, std::function<void(void*)> run) {
  return device.submit(stream,
                       {.name = "work", .reads = {}, .writes = {}, .cost = {}, .run = std::move(run)});
}

Point submit_kernel(Device& device, StreamId stream, std::function<void()> kernel) {
  return submit(device, stream, [kernel = std::move(kernel)](void* native) { launch(native, kernel); });
}

// Calls every entry point of a device, one step after the other. Bytes travel to the device and back, and the
// last step checks them.
class Tour {
 public:
  explicit Tour(Device& device) : device_(device) {}

  // Calls after() after each step.
  void run(const std::function<void()>& after = [] {}) {
    for (void (Tour::*const step)() : kSteps) {
      (this->*step)();
      after();
    }
    EXPECT_TRUE(*seen_ == pattern()) << "other bytes came back than were sent";
  }

 private:
  static constexpr std::uint64_t kBytes = 3 * kGranule - 100;
  using Bytes = std::vector<std::uint8_t>;

  static Bytes pattern() {
    Bytes bytes(kBytes);
    std::uint32_t state = 1;
    std::ranges::generate(
        bytes, [&state] { return static_cast<std::uint8_t>((state = state * 1664525 + 1013904223) >> 24U); });
    return bytes;
  }

  AddressRange on_device() const { return {.begin = reserved_.begin, .bytes = kBytes}; }
  void trace() { device_.set_tracing(true); }
  void reserve() { reserved_ = device_.reserve(4 * kGranule); }
  void commit() { device_.commit(reserved_); }
  void pin() { pinned_ = device_.allocate_pinned(kBytes); }
  void compute_stream() { compute_ = device_.create_stream("compute"); }
  void memory_stream() { memory_ = device_.create_stream("memory"); }
  void fill() {
    submit_kernel(device_, compute_, [to = on_device(), bytes = pattern()] {
      std::ranges::copy(bytes, pointer_to<std::uint8_t>(to.begin));
    });
  }
  void wait_to_offload() { device_.wait(memory_, device_.frontier(compute_)); }
  void offload() {
    device_.copy(memory_, {.name = "offload",
                           .direction = CopyDirection::kDeviceToHost,
                           .destination = {.range = pinned_},
                           .source = {.range = on_device()}});
  }
  void sample() { device_.sample_counter(memory_, "in use", 1); }
  void synchronize() {
    device_.synchronize(device_.frontier(memory_));
    EXPECT_TRUE(device_.reached(device_.frontier(memory_)));
  }
  // A graph copies the same bytes from the device to the host again, twice.
  void offload_once_more() {
    wait_to_offload();
    offload();
  }
  void capture() {
    const std::array streams{compute_, memory_};
    graph_ = device_.capture(streams, [this] { offload_once_more(); });
  }
  void replay() {
    device_.replay(*graph_, [this] { offload_once_more(); });
  }
  void drop_graph() { graph_ = nullptr; }
  void decommit() { device_.decommit(reserved_); }
  void prefetch() {
    device_.copy(memory_, {.name = "prefetch",
                           .direction = CopyDirection::kHostToDevice,
                           .destination = {.range = on_device()},
                           .source = {.range = pinned_}});
  }
  void wait_to_look() { device_.wait(compute_, device_.frontier(memory_)); }
  void look() {
    submit_kernel(device_, compute_, [seen = seen_, from = on_device()] {
      const auto* const begin = pointer_to<const std::uint8_t>(from.begin);
      seen->assign(begin, begin + from.bytes);
    });
  }
  void ask() { device_.reached(device_.frontier(compute_)); }
  void synchronize_all() { device_.synchronize_all(); }
  void stop_tracing() { device_.set_tracing(false); }
  void unpin() { device_.free_pinned(pinned_); }
  void unreserve() { device_.unreserve(reserved_); }

  static constexpr auto kSteps = std::to_array({&Tour::reserve,
                                                &Tour::commit,
                                                &Tour::pin,
                                                &Tour::compute_stream,
                                                &Tour::memory_stream,
                                                &Tour::trace,
                                                &Tour::fill,
                                                &Tour::wait_to_offload,
                                                &Tour::offload,
                                                &Tour::sample,
                                                &Tour::synchronize,
                                                &Tour::capture,
                                                &Tour::replay,
                                                &Tour::drop_graph,
                                                &Tour::synchronize,
                                                &Tour::decommit,
                                                &Tour::stop_tracing,
                                                &Tour::commit,
                                                &Tour::prefetch,
                                                &Tour::wait_to_look,
                                                &Tour::look,
                                                &Tour::ask,
                                                &Tour::synchronize_all,
                                                &Tour::unpin,
                                                &Tour::decommit,
                                                &Tour::unreserve});

  Device& device_;
  AddressRange reserved_;
  AddressRange pinned_;
  StreamId compute_ = 0;
  StreamId memory_ = 0;
  std::unique_ptr<DeviceGraph> graph_;
  const std::shared_ptr<Bytes> seen_ = std::make_shared<Bytes>();  // outlives a tour that was broken off
};

// --- creation -------------------------------------------------------------------------------------------

TEST(CudaDevice, SaysWhatItIs) {
  const auto device =
      make_cuda_device({.ordinal = 1, .reserve_bytes = 0},
                       strict_fake({.gpus = 2, .memory_bytes = 10 << 20, .used_bytes = (2 << 20) + 1}));
  const DeviceProperties& properties = device->properties();
  EXPECT_EQ(properties.name, "cuda:1");
  EXPECT_EQ(properties.granule_bytes, 2U << 20);
  EXPECT_EQ(properties.alignment_bytes, 512U);
  EXPECT_EQ(properties.memory_bytes, 10U << 20);
  EXPECT_EQ(properties.budget_bytes, 6U << 20) << "free memory in whole granules";
  EXPECT_GT(properties.host_budget_bytes, 0U);
  EXPECT_TRUE(properties.touches_memory);
}

// Regression: the driver aligned blocks to 256 bytes and `sim` to 512. Plans of deep networks then needed
// more memory than their runs.
TEST(CudaDevice, GpusThatAreSimulatedHaveItsGranuleAndAlignment) {
  const auto device = make_cuda_device({}, strict_fake(FakeCudaOptions{}));
  for (const char* const name : {"a100", "rtx4090", "h100", "h200", "b200"}) {
    const SimProfile profile = sim_profile(name);
    EXPECT_EQ(profile.granule_bytes, device->properties().granule_bytes) << name;
    EXPECT_EQ(profile.alignment_bytes, device->properties().alignment_bytes) << name;
  }
}

TEST(CudaDevice, ABudgetOfMoreThanIsFreeIsRefusedWithTheNumbers) {
  const FakeCudaOptions gpu{.memory_bytes = 10 << 20, .used_bytes = 3 << 20};
  try {
    make_cuda_device({.budget_bytes = 8 << 20}, strict_fake(gpu));
    FAIL() << "accepted";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.shortage().asked, 8U << 20);
    EXPECT_EQ(error.shortage().in_use, 3U << 20);
    EXPECT_EQ(error.shortage().budget, 10U << 20);
    EXPECT_EQ(error.shortage().would_have_fitted, 7U << 20);
    EXPECT_THAT(error.what(), HasSubstr("cuda:0"));
  }
  EXPECT_EQ(make_cuda_device({.budget_bytes = 7 << 20}, strict_fake(gpu))->properties().budget_bytes,
            6U << 20);
  EXPECT_THROW(make_cuda_device({.budget_bytes = 1 << 20}, strict_fake(gpu)), InvalidArgument);
}

TEST(CudaDevice, WhatContextAndLibrariesTakeIsSubtractedFirst) {
  FakeCudaOptions gpu{.memory_bytes = 20 << 20, .used_bytes = 1 << 20, .context_bytes = (3 << 20) + 5};
  const auto device = make_cuda_device({.budget_bytes = 10 << 20}, strict_fake(gpu));
  EXPECT_EQ(device->properties().library_bytes, (3U << 20) + 5);
  EXPECT_EQ(device->properties().budget_bytes, 6U << 20) << "the rest in whole granules";
  EXPECT_EQ(make_cuda_device({.reserve_bytes = 0}, strict_fake(gpu))->properties().budget_bytes, 14U << 20);
  // The largest possible budget is the memory that was free before the context existed.
  EXPECT_EQ(make_cuda_device({.budget_bytes = 19 << 20}, strict_fake(gpu))->properties().budget_bytes,
            14U << 20);
  EXPECT_THROW(make_cuda_device({.budget_bytes = (19 << 20) + 1}, strict_fake(gpu)), OutOfMemory);
  EXPECT_THAT(thrown_by([&] { make_cuda_device({.budget_bytes = 4 << 20}, strict_fake(gpu)); }),
              HasSubstr("beside 3 MiB (3145733 bytes) of context and libraries"));
  // The caller passes library_bytes measured earlier.
  EXPECT_EQ(make_cuda_device({.budget_bytes = 10 << 20, .library_bytes = 7 << 20}, strict_fake(gpu))
                ->properties()
                .budget_bytes,
            2U << 20);
  // Without NVML, free memory is unknown until the context exists, so all used memory counts.
  gpu.nvml = false;
  const auto careful = make_cuda_device({.budget_bytes = 10 << 20}, strict_fake(gpu));
  EXPECT_EQ(careful->properties().library_bytes, (4U << 20) + 5);
  EXPECT_EQ(careful->properties().budget_bytes, 4U << 20);
}

// CUDA loads the code of kernels at their first launch. Regression: all free memory was the budget, so the
// code of kernels no longer fitted beside the budget.
TEST(CudaDevice, TheDefaultBudgetLeavesAReserve) {
  constexpr std::uint64_t kMiB = 1 << 20;
  const auto made = [](std::uint64_t free_bytes, const CudaDeviceOptions& options) {
    return make_cuda_device(options, strict_fake({.memory_bytes = free_bytes + kMiB, .used_bytes = kMiB}))
        ->properties();
  };
  EXPECT_EQ(made(1024 * kMiB, {}).reserve_bytes, 256 * kMiB);
  EXPECT_EQ(made(1024 * kMiB, {}).budget_bytes, 768 * kMiB);
  EXPECT_EQ(made(100'000 * kMiB, {}).reserve_bytes, 2000 * kMiB);
  EXPECT_EQ(made(100'000 * kMiB, {}).budget_bytes, 98'000 * kMiB);
  EXPECT_EQ(made(1024 * kMiB, {.reserve_bytes = 24 * kMiB}).budget_bytes, 1000 * kMiB);
  EXPECT_THAT(thrown_by([&] { made(100 * kMiB, {}); }),
              AllOf(HasSubstr("a budget of 0 bytes"), HasSubstr("with 100 MiB"), HasSubstr("kept back")));
  // Regression: a card that other programs had filled was reported as an invalid argument.
  EXPECT_THROW(made(100 * kMiB, {}), OutOfMemory);
  EXPECT_THROW(made(100 * kMiB, {.budget_bytes = 1}), InvalidArgument);
  // An explicit budget has no reserve.
  EXPECT_EQ(made(1024 * kMiB, {.budget_bytes = 1024 * kMiB}).budget_bytes, 1024 * kMiB);
  EXPECT_EQ(made(1024 * kMiB, {.budget_bytes = 1024 * kMiB}).reserve_bytes, 0U);
  EXPECT_THROW(made(1024 * kMiB, {.budget_bytes = kMiB, .reserve_bytes = kMiB}), InvalidArgument);
}

TEST(CudaDevice, ABudgetGivesWayAsFarAsItIsTold) {
  const auto budget_of = [](std::uint64_t least) {
    return make_cuda_device({.budget_bytes = 12 << 20, .least_budget_bytes = least},
                            strict_fake({.memory_bytes = 10 << 20}))
        ->properties()
        .budget_bytes;
  };
  EXPECT_EQ(budget_of(0), 10U << 20);
  EXPECT_EQ(budget_of(10 << 20), 10U << 20);
  EXPECT_THROW(budget_of((10 << 20) + 1), OutOfMemory);
  EXPECT_THROW(budget_of((12 << 20) + 1), InvalidArgument);
  // No budget is too small for the caller here, but the driver refuses a budget of nothing.
  EXPECT_THROW(make_cuda_device({.budget_bytes = 12 << 20, .least_budget_bytes = 0},
                                strict_fake({.memory_bytes = 1 << 20})),
               OutOfMemory);
}

TEST(CudaDevice, ASecondDeviceOfTheGpuCountsTheContextNoMore) {
  const auto fake = strict_fake({.memory_bytes = 20 << 20, .context_bytes = 4 << 20});
  const auto first = make_cuda_device({.budget_bytes = 10 << 20}, fake);
  const auto second = make_cuda_device({.budget_bytes = 10 << 20}, fake);
  EXPECT_EQ(first->properties().library_bytes, 4U << 20);
  EXPECT_EQ(second->properties().library_bytes, 0U);
  EXPECT_EQ(second->properties().budget_bytes, 10U << 20);
}

TEST(CudaDevice, AGpuThatDoesNotExistIsRefusedWithTheLastThatDoes) {
  for (const int ordinal : {-1, 2}) {
    EXPECT_THROW(make_device(strict_fake(), ordinal), InvalidArgument);
    EXPECT_THAT(thrown_by([&] { make_device(strict_fake(), ordinal); }),
                AllOf(HasSubstr("cuda:" + std::to_string(ordinal) + ":"), HasSubstr("cuda:1")));
  }
}

TEST(CudaDevice, PeersThatCannotBeAreRefused) {
  const auto refusal = [](const std::vector<int>& peers) {
    const auto fake = strict_fake({.gpus = 3, .peers = peers != std::vector{0, 2}});
    std::string said = thrown_by([&] { make_cuda_device({.ordinal = 1, .peers = peers}, fake); });
    EXPECT_FALSE(fake->uses(1)) << "the refused GPU was initialised nevertheless";
    return said;
  };
  EXPECT_THAT(refusal({3}), HasSubstr("cuda:1: peer cuda:3: there is no such GPU; the last of 3 is cuda:2"));
  EXPECT_THAT(refusal({-1}), HasSubstr("peer cuda:-1: there is no such GPU"));
  EXPECT_THAT(refusal({2, 1}), HasSubstr("cuda:1: peer cuda:1 is the GPU itself"));
  EXPECT_THAT(refusal({2, 0, 2}), HasSubstr("cuda:1: peer cuda:2 is named twice"));
  EXPECT_THAT(refusal({0, 2}), HasSubstr("cuda:0 (Fake GPU 0) cannot touch memory of cuda:1 (Fake GPU 1)"));
}

TEST(CudaDevice, SaysWhatIsMissing) {
  const auto refusal = [](const FakeCudaOptions& options) {
    return thrown_by([&] { make_cuda_device({}, strict_fake(options)); });
  };
  EXPECT_THAT(refusal({.driver_version = 0}), HasSubstr("no CUDA driver is installed"));
  EXPECT_THAT(refusal({.driver_version = 12040}),
              AllOf(HasSubstr("too old"), HasSubstr("CUDA 12.4"), HasSubstr("13.0")));
  EXPECT_THAT(refusal({.gpus = 0}), HasSubstr("no GPU"));
}

// Uses CUDA itself. With a GPU the copies work; otherwise the error gives the reason.
TEST(CudaDevice, OnThisMachineCopiesOrSaysWhyNot) {
  std::unique_ptr<Device> device;
  try {
    device = make_cuda_device({});
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), AnyOf(HasSubstr("no CUDA driver is installed"), HasSubstr("driver is too old"),
                                    HasSubstr("no GPU that it can see"), HasSubstr("has no CUDA runtime")));
    GTEST_SKIP() << error.what();
  }
  const StreamId stream = device->create_stream("memory");
  const AddressRange block = device->reserve(1);
  device->commit(block);
  const AddressRange from = device->allocate_pinned(100'000);
  const AddressRange to = device->allocate_pinned(100'000);
  std::memset(pointer_to<void>(from.begin), 7, from.bytes);
  const Access there{.range = {.begin = block.begin + 3, .bytes = from.bytes}};
  device->copy(stream, {.name = "there",
                        .direction = CopyDirection::kHostToDevice,
                        .destination = there,
                        .source = {.range = from}});
  device->copy(stream, {.name = "back",
                        .direction = CopyDirection::kDeviceToHost,
                        .destination = {.range = to},
                        .source = there});
  device->synchronize_all();
  EXPECT_EQ(std::memcmp(pointer_to<void>(from.begin), pointer_to<void>(to.begin), to.bytes), 0);
}

TEST(CudaDevice, PageLockedMemoryIsOfTheNodeBesideTheGpu) {
  if (!may_prefer_nodes()) {
    GTEST_SKIP() << "the system does not permit it";
  }
  const auto mode_of_a_block = [](std::optional<int> node) {
    const auto device = make_cuda_device({}, strict_fake({.host_node = node}));
    return memory_policy(device->allocate_pinned(5000).begin)->mode;
  };
  EXPECT_EQ(mode_of_a_block(std::nullopt), MPOL_DEFAULT);
  EXPECT_EQ(mode_of_a_block(0), MPOL_PREFERRED);
  EXPECT_EQ(mode_of_a_block(1 << 20), MPOL_DEFAULT) << "no such node exists";
}

// --- memory without virtual memory management -------------------------------------------------------------

TEST(CudaDevice, WithoutVirtualMemoryAReservationIsMemoryAndCommitsCount) {
  const auto fake = strict_fake({.memory_bytes = 10 << 20, .virtual_memory = false});
  const auto device = make_cuda_device({.budget_bytes = 7 << 20}, fake);
  EXPECT_EQ(device->properties().granule_bytes, 2U << 20);
  EXPECT_EQ(device->properties().budget_bytes, 6U << 20);
  const AddressRange range = device->reserve(6 << 20);
  EXPECT_EQ(fake->mapped_bytes(), 6U << 20);
  const AddressRange one{.begin = range.begin, .bytes = 2 << 20};
  device->commit(one);
  EXPECT_EQ(device->counters().committed_bytes, 2U << 20);
  EXPECT_THROW(device->commit(one), InvalidArgument);
  device->decommit(one);
  EXPECT_EQ(fake->mapped_bytes(), 6U << 20);
  try {
    device->reserve(5 << 20);
    ADD_FAILURE() << "reserved more memory than the GPU has";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(), HasSubstr("cudaMalloc"));
    EXPECT_EQ(error.shortage().asked, 6U << 20);
    EXPECT_EQ(error.shortage().would_have_fitted, 4U << 20);
  }
  device->unreserve(range);
  EXPECT_EQ(fake->mapped_bytes(), 0U);
}

TEST(CudaDevice, MemoryThatGranulesDoNotDivideIsRefusedAndGivenBack) {
  const auto device = make_cuda_device({}, strict_fake({.virtual_memory = false, .malloc_offset = 4096}));
  EXPECT_THAT(thrown_by([&] { device->reserve(1); }), HasSubstr("cudaMalloc(2 MiB"));
}

// --- order ------------------------------------------------------------------------------------------------

TEST(CudaDevice, CallsPutBackTheGpuThatTheThreadHad) {
  const auto fake = strict_fake();
  fake->set_device(0);
  const auto device = make_device(fake);
  Tour(*device).run([&] {
    int current = -1;
    fake->get_device(current);
    EXPECT_EQ(current, 0);
  });
}

// Regression: calls left the thread with the GPU's primary context.
TEST(CudaDevice, CallsPutBackAContextOfTheProgramsOwn) {
  const auto fake = strict_fake();
  const CudaContextHandle own = fake->make_context(1);
  fake->set_current_context(own);
  const auto device = make_device(fake);
  Tour(*device).run([&] {
    CudaContextHandle current = nullptr;
    fake->current_context(current);
    EXPECT_EQ(current, own);
  });
}

// A capture in the default mode, cudaStreamCaptureModeGlobal, forbids other threads all calls that might
// wait. Regression: calls failed with "error 900", and the program lost its graph.
TEST(CudaDevice, LeavesCapturesOfOtherThreadsAlone) {
  const auto fake = strict_fake();
  fake->set_device(0);
  CudaStream stream = nullptr;
  fake->stream_create(stream);
  EXPECT_EQ(fake->stream_begin_capture(stream, CaptureMode::kGlobal), CudaStatus::kSuccess);
  std::thread([&] {
    const auto device = make_device(fake);
    Tour(*device).run();
  }).join();
  CudaGraph graph = nullptr;
  EXPECT_EQ(fake->stream_end_capture(graph, stream), CudaStatus::kSuccess);
  fake->graph_destroy(graph);
  fake->stream_destroy(stream);
}

// Each thread begins on GPU 0. Regression: calls always restored that GPU, which made a context of hundreds
// of megabytes there.
TEST(CudaDevice, AGpuThatNobodyUsesIsNotPutBack) {
  const auto fake = strict_fake();
  {
    const auto device = make_device(fake);
    Tour(*device).run();
    std::thread([&] { device->synchronize_all(); }).join();
  }
  EXPECT_FALSE(fake->uses(0));
  EXPECT_TRUE(fake->uses(1));
}

TEST(CudaDevice, ThreadsThatNeverUsedTheGpuCanCommit) {
  const auto device = make_device(strict_fake());
  const AddressRange range = device->reserve(kGranule);
  // The driver's own entry points need a context, and a new thread has none, not even that of GPU 0.
  // Regression: not every call set the GPU.
  std::thread([&] { EXPECT_EQ(thrown_by([&] { device->commit(range); }), "nothing"); }).join();
  EXPECT_EQ(device->counters().committed_bytes, kGranule);
}

TEST(CudaDevice, SubmittingNeverWaitsAndASteadyStateTakesNothing) {
  const auto fake = strict_fake();
  const auto device = make_device(fake);
  const StreamId compute = device->create_stream("compute");
  const StreamId memory = device->create_stream("memory");
  const AddressRange block = device->reserve(kGranule);
  device->commit(block);
  const AddressRange host = device->allocate_pinned(kGranule);
  const auto host_waits = [&] {
    return fake->calls("cudaEventSynchronize") + fake->calls("cudaStreamSynchronize") +
           fake->calls("cudaEventQuery");
  };
  constexpr int kSteps = 10;
  constexpr int kLayers = 5;
  Frontier previous;
  for (int step = 0; step < kSteps; ++step) {
    const std::uint64_t waits = host_waits();
    for (int layer = 0; layer < kLayers; ++layer) {
      submit_kernel(*device, compute, [] {});
      device->wait(memory, device->frontier(compute));
      device->copy(memory, {.name = "offload",
                            .direction = CopyDirection::kDeviceToHost,
                            .destination = {.range = host},
                            .source = {.range = block}});
      device->wait(compute, device->frontier(memory));
    }
    EXPECT_EQ(host_waits(), waits) << "step " << step;
    device->synchronize(std::exchange(previous, device->frontier(compute)));
  }
  // One event per submission of the at most two steps in flight, and one event on which the host sleeps.
  EXPECT_LE(fake->calls("cudaEventCreateWithFlags"), 2U * 2 * kLayers + 1);
  EXPECT_EQ(fake->calls("cuMemCreate"), 1U);
  EXPECT_EQ(fake->calls("cudaHostRegister"), 1U);
}

TEST(CudaDevice, AWaitIsForItsPointAndNotForLaterSubmissions) {
  bool overtaken = false;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto device = make_device(strict_fake(small_gpus(seed)));
    const StreamId a = device->create_stream("a");
    const StreamId b = device->create_stream("b");
    std::string order;
    const Point first = submit_kernel(*device, a, [&order] { order += '1'; });
    submit_kernel(*device, a, [&order] { order += '2'; });
    device->wait(b, Frontier(first));
    submit_kernel(*device, b, [&order] { order += 'b'; });
    device->synchronize_all();
    EXPECT_LT(order.find('1'), order.find('b')) << "seed " << seed;
    overtaken = overtaken || order == "1b2";
  }
  EXPECT_TRUE(overtaken) << "b's work never ran earlier than work for which it does not wait";
}

// Regression: an event could return to its pool between its lookup and the wait for it. In this test, the
// wait would then be for work that is held back, so stream b would never finish.
TEST(CudaDevice, AnEventThatIsAboutToBeWaitedForIsNotUsedAgain) {
  const auto fake = strict_fake();
  const auto device = make_device(fake);
  const StreamId a = device->create_stream("a");
  const StreamId b = device->create_stream("b");
  const StreamId held = device->create_stream("held");
  bool released = false;
  submit_kernel(*device, a, [] {});
  fake->before_next_wait([&] {
    device->synchronize_all();
    submit(*device, held, [&](void* native) { FakeCuda::hold(native, [&] { return released; }); });
  });
  device->wait(b, device->frontier(a));
  submit_kernel(*device, b, [] {});
  device->synchronize(device->frontier(b));
  released = true;
  device->synchronize_all();
}

TEST(CudaDevice, ThreadsSubmitWaitAndSynchronizeAtOnce) {
  const auto device = make_device(strict_fake());
  constexpr int kSubmissions = 200;
  std::array<StreamId, 3> streams{};
  std::array<int, 3> counts{};
  for (StreamId& stream : streams) {
    stream = device->create_stream("stream");
  }
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < kSubmissions; ++j) {
        submit_kernel(*device, streams[i], [&count = counts[i]] { ++count; });
        if (j % 10 == 0) {
          device->wait(streams[i], device->frontier(streams[(i + 1) % streams.size()]));
        }
        if (j % 25 == 0) {
          device->synchronize(device->frontier(streams[i]));
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  device->synchronize_all();
  EXPECT_EQ(counts, (std::array<int, 3>{kSubmissions, kSubmissions, kSubmissions}));
}

// --- graphs -----------------------------------------------------------------------------------------------

// Two streams of a device and the work of a step: 1 on the first stream, then 2 on the second, then 3 on the
// first. Nothing waits for 4 on the second stream.
class GraphTest : public testing::Test {
 protected:
  explicit GraphTest(std::uint64_t seed = 0)
      : fake(strict_fake(small_gpus(seed))), device(make_device(fake)) {}

  Point say(StreamId stream, char what) {
    return submit_kernel(*device, stream, [this, what] { said += what; });
  }
  void step() {
    say(a, '1');
    device->wait(b, device->frontier(a));
    const Point second = say(b, '2');
    say(b, '4');
    device->wait(a, Frontier(second));
    say(a, '3');
  }
  std::unique_ptr<DeviceGraph> capture(const std::function<void()>& submit_all) {
    return device->capture(std::array{a, b}, submit_all);
  }
  // Expects `cause` from each call on the streams until recover(), no captured work run, and a working
  // capture afterwards.
  void expect_ended(const std::string& cause) {
    for (const StreamId stream : {a, b}) {
      EXPECT_THAT(thrown_by([&] { say(stream, 'x'); }), HasSubstr(cause));
      EXPECT_THAT(thrown_by([&] { device->synchronize(device->frontier(stream)); }), HasSubstr(cause));
      EXPECT_TRUE(device->reached(device->frontier(stream)));
    }
    device->recover();
    EXPECT_EQ(std::exchange(said, ""), "");
    const std::unique_ptr<DeviceGraph> graph = capture([this] { step(); });
    device->replay(*graph, [this] { step(); });
    device->synchronize_all();
    EXPECT_EQ(said.size(), 8U);
  }

  std::shared_ptr<FakeCuda> fake;
  std::unique_ptr<Device> device;
  StreamId a = device->create_stream("a");
  StreamId b = device->create_stream("b");
  StreamId outside = device->create_stream("outside");
  std::string said;
};

class GraphOrder : public GraphTest {
 public:
  explicit GraphOrder(std::uint64_t seed) : GraphTest(seed) {}
  void TestBody() override {}
  std::string run() {
    say(b, '0');
    const std::unique_ptr<DeviceGraph> graph = capture([this] { step(); });
    say(a, '5');
    device->replay(*graph, [this] { step(); });
    say(b, '6');
    device->synchronize_all();
    return said;
  }
};

TEST(CudaGraph, RunsInEveryOrderThatStreamsAndWaitsPermitAndInNoOther) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    seen.insert(GraphOrder(seed).run());
  }
  EXPECT_THAT(seen,
              testing::UnorderedElementsAre("01243512436", "01243512346", "01234512436", "01234512346"));
}

TEST_F(GraphTest, AReplayIsOneCallInPlaceOfTheCapturedOnes) {
  const std::unique_ptr<DeviceGraph> graph = capture([this] { step(); });
  device->synchronize_all();
  const auto calls = [this] {
    return std::array{fake->calls("cudaGraphLaunch"),         fake->calls("cudaStreamWaitEvent"),
                      fake->calls("cudaEventRecord"),         fake->calls("cudaStreamSynchronize"),
                      fake->calls("cudaEventSynchronize"),    fake->calls("cudaEventQuery"),
                      fake->calls("cudaEventCreateWithFlags")};
  };
  auto before = calls();
  device->replay(*graph, [this] { step(); });
  const auto after = calls();
  std::ranges::transform(after, before, before.begin(), std::minus());
  EXPECT_THAT(before, testing::ElementsAre(1, 1, 2, 0, 0, 0, 0));
  device->synchronize_all();
  EXPECT_EQ(said.size(), 8U);
}

TEST_F(GraphTest, WhatIsInsideCannotBeWaitedForBeforeItIsLaunched) {
  capture([this] {
    step();
    std::thread([this] { EXPECT_FALSE(device->reached(device->frontier(a))); }).join();
    for (const std::string& said_by_wait :
         {thrown_by([&] { device->synchronize(device->frontier(a)); }),
          thrown_by([&] { device->synchronize_all(); }), thrown_by([&] { device->recover(); }),
          thrown_by([&] { device->wait(outside, device->frontier(b)); })}) {
      EXPECT_THAT(said_by_wait, HasSubstr("a capture that has not ended"));
    }
    say(outside, 'o');
    EXPECT_THAT(thrown_by([&] { device->wait(b, device->frontier(outside)); }),
                AllOf(HasSubstr("cannot wait"), HasSubstr("'outside'")));
    EXPECT_THAT(thrown_by([&] { capture([] {}); }), HasSubstr("capture inside another"));
  });
  device->wait(outside, device->frontier(b));
  device->synchronize(device->frontier(outside));
  EXPECT_EQ(said.size(), 5U);
}

TEST_F(GraphTest, WhatIsThrownInTheMiddleEndsTheCaptureAndIsTheCauseUntilRecovery) {
  EXPECT_THAT(thrown_by([&] {
                capture([this] {
                  step();
                  throw DataError("no more data");
                });
              }),
              HasSubstr("no more data"));
  expect_ended("no more data");
}

// The work of a capture that is broken off never runs, so a wait for it ends at once. The earlier work in the
// same frontier is still awaited.
TEST_F(GraphTest, WorkBeforeABrokenOffCaptureIsStillWaitedFor) {
  bool go_on = false;
  submit(*device, outside, [&](void* native) {
    EXPECT_EQ(FakeCuda::hold(native, [&] { return go_on; }), CudaStatus::kSuccess);
    launch(native, [this] { said += 'o'; });
  });
  EXPECT_THROW(capture([this] {
                 say(a, '1');
                 throw DataError("no more data");
               }),
               DataError);
  const StreamId later = device->create_stream("later");
  device->wait(later, device->frontier(a));
  say(later, 'l');
  fake->rest();
  EXPECT_EQ(said, "");
  go_on = true;
  device->synchronize(Frontier({.stream = later, .count = 1}));
  EXPECT_EQ(said, "ol");
}

TEST_F(GraphTest, WorkThatThrowsInsideEndsTheCapture) {
  EXPECT_THAT(thrown_by([&] {
                capture([this] {
                  step();
                  submit(*device, a, [](void*) { throw DataError("a kernel is missing"); });
                });
              }),
              HasSubstr("a kernel is missing"));
  expect_ended("a kernel is missing");
}

// A library might allocate like this inside its calls.
TEST_F(GraphTest, MemoryTakenInsideEndsTheCapture) {
  const std::string said_by_capture = thrown_by([&] {
    capture([&] {
      step();
      submit(*device, b, [this](void*) {
        std::uint64_t handle = 0;
        EXPECT_NE(fake->memory_create(handle, kGranule, {.ordinal = 1}), CudaStatus::kSuccess);
        fake->get_last_error();
      });
    });
  });
  EXPECT_THAT(said_by_capture, HasSubstr("error 901"));
  expect_ended("error 901");
}

TEST_F(GraphTest, MemoryThatIsAskedOfTheDeviceInsideIsRefusedBeforeCudaSeesIt) {
  const AddressRange range = device->reserve(kGranule);
  const std::unique_ptr<DeviceGraph> graph = capture([&] {
    const std::uint64_t inside = fake->calls();
    EXPECT_THAT(thrown_by([&] { device->commit(range); }), HasSubstr("a commit"));
    EXPECT_THAT(thrown_by([&] { device->allocate_pinned(1); }), HasSubstr("page-locking"));
    EXPECT_EQ(fake->calls(), inside);
    step();
  });
  device->replay(*graph, [this] { step(); });
  device->synchronize_all();
  EXPECT_EQ(said.size(), 8U);
}

// The first timestamp of a trace waits for the device. Regression: that wait invalidated the capture.
TEST_F(GraphTest, OtherStreamsAreTracedMeanwhile) {
  device->set_tracing(true);
  capture([this] {
    step();
    say(outside, 'o');
  });
  device->synchronize_all();
  EXPECT_EQ(said.size(), 5U);
  EXPECT_THAT(device->take_trace(), ::testing::Contains(::testing::Field(&TraceEvent::stream, outside)));
}

TEST_F(GraphTest, WantOfMemoryForAGraphIsOutOfMemory) {
  fake->fail_call(1, CudaStatus::kMemoryAllocation, "cudaGraphInstantiate");
  try {
    capture([this] { step(); });
    ADD_FAILURE() << "captured";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(), HasSubstr("cudaGraphInstantiate"));
    EXPECT_EQ(error.shortage().budget, FakeCudaOptions().memory_bytes);
    EXPECT_EQ(error.shortage().would_have_fitted, FakeCudaOptions().memory_bytes);
  }
  device->recover();
}

TEST_F(GraphTest, AReplayOfSomethingElseIsRefused) {
  const std::unique_ptr<DeviceGraph> graph = capture([this] { step(); });
  device->synchronize_all();
  said.clear();
  const std::array<std::function<void()>, 4> others{[] {}, [this] { say(b, 'x'); },
                                                    [this] {
                                                      step();
                                                      say(a, 'x');
                                                    },
                                                    [this] {
                                                      say(a, '1');
                                                      say(b, '2');
                                                    }};
  for (const auto& other : others) {
    const std::string refused = thrown_by([&] { device->replay(*graph, other); });
    EXPECT_THAT(refused, AnyOf(HasSubstr("when the graph was captured"), HasSubstr("a replay ends after")));
    device->recover();
    EXPECT_EQ(said, "");
  }
  device->replay(*graph, [this] { step(); });
  device->synchronize_all();
  EXPECT_EQ(said.size(), 4U);
}

TEST_F(GraphTest, AReplayAtAnotherAddressIsRefused) {
  const AddressRange block = device->reserve(2 * kGranule);
  device->commit(block);
  const AddressRange pinned = device->allocate_pinned(kGranule);
  const auto offload = [&](std::uint64_t begin) {
    device->copy(a, {.name = "offload",
                     .direction = CopyDirection::kDeviceToHost,
                     .destination = {.range = pinned},
                     .source = {.range = {.begin = begin, .bytes = kGranule}}});
  };
  const std::unique_ptr<DeviceGraph> graph = capture([&] { offload(block.begin); });
  EXPECT_THAT(thrown_by([&] { device->replay(*graph, [&] { offload(block.begin + kGranule); }); }),
              AllOf(HasSubstr("'offload' on stream 'a'"), HasSubstr("not at the same addresses")));
}

// Regression: the replay still expected work that the driver had refused, and work that a replay had refused
// counted as replayed.
TEST_F(GraphTest, WhatIsRefusedInsideIsNoPartOfTheGraph) {
  const auto try_to = [](const std::function<void()>& give) { EXPECT_NE(thrown_by(give), "nothing"); };
  const Access nowhere{.range = {.begin = 1, .bytes = 1}};
  const std::unique_ptr<DeviceGraph> graph = capture([&] {
    fake->fail_call(1, CudaStatus::kInvalidValue, "cudaStreamWaitEvent");
    say(a, '1');
    try_to([&] { device->wait(b, device->frontier(a)); });
    device->wait(b, device->frontier(a));
    try_to([&] { device->copy(b, {.name = "astray", .destination = nowhere, .source = nowhere}); });
    say(b, '2');
  });
  device->replay(*graph, [&] {
    say(a, '1');
    try_to([&] { say(b, 'x'); });
    device->wait(b, device->frontier(a));
    say(b, '2');
  });
  device->synchronize_all();
  EXPECT_EQ(said, "1212");
}

TEST_F(GraphTest, AReplayWhoseEndCannotBeRecordedFailsLateAndIsStillWaitedFor) {
  for (const char* const call : {"cudaStreamWaitEvent", "cudaEventRecord"}) {
    const std::unique_ptr<DeviceGraph> graph = capture([this] { step(); });
    device->synchronize_all();
    said.clear();
    fake->fail_call(1, CudaStatus::kInvalidValue, call);
    device->replay(*graph, [this] { step(); });
    EXPECT_THAT(thrown_by([&] { device->synchronize(device->frontier(b)); }), HasSubstr(call));
    EXPECT_EQ(said.size(), 4U);
    device->recover();
  }
}

// Regression: the driver queried an event that was last recorded in a capture, which CUDA refuses.
TEST_F(GraphTest, AnEventOfACaptureServesASubmissionWhoseEndCannotBeRecorded) {
  capture([this] { step(); });
  device->synchronize_all();
  fake->fail_call(1, CudaStatus::kInvalidValue, "cudaEventRecord");
  say(a, 'x');
  EXPECT_THAT(thrown_by([&] { device->synchronize(device->frontier(a)); }), HasSubstr("cudaEventRecord"));
}

// --- copies and memory ------------------------------------------------------------------------------------

TEST(CudaDevice, CopiesThatWouldWaitOrGoAstrayAreRefused) {
  const auto device = make_device(strict_fake());
  const StreamId stream = device->create_stream("memory");
  const AddressRange block = device->reserve(2 * kGranule);
  const AddressRange committed{.begin = block.begin, .bytes = kGranule};
  device->commit(committed);
  const AddressRange pinned = device->allocate_pinned(kGranule);
  std::vector<std::uint8_t> pageable(kGranule);
  const auto offload = [&](AddressRange to, AddressRange from) {
    return thrown_by([&] {
      device->copy(stream, {.name = "x",
                            .direction = CopyDirection::kDeviceToHost,
                            .destination = {.range = to},
                            .source = {.range = from}});
    });
  };
  EXPECT_THAT(
      offload({.begin = reinterpret_cast<std::uintptr_t>(pageable.data()), .bytes = kGranule}, committed),
      AllOf(HasSubstr("copy 'x'"), HasSubstr("not page-locked")));
  EXPECT_THAT(offload({.begin = pinned.begin + 1, .bytes = kGranule}, committed),
              HasSubstr("not page-locked"));
  EXPECT_THAT(offload(pinned, {.begin = block.begin + 1, .bytes = kGranule}), HasSubstr("not committed"));
  EXPECT_TRUE(device->frontier(stream).empty());
  EXPECT_EQ(offload(pinned, committed), "nothing");
}

TEST(CudaDevice, ACommitThatFailsHalfwayIsOutOfMemoryWithNumbersAndLeavesNothingMapped) {
  const auto fake = strict_fake();
  const auto device = make_device(fake);
  const AddressRange range = device->reserve(8 * kGranule);
  for (const char* const call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
    const bool once = std::string_view(call) == "cuMemSetAccess";
    fake->fail_call(once ? 1 : 5, CudaStatus::kMemoryAllocation, call);
    try {
      device->commit(range);
      FAIL() << call << " failed, but the commit did not";
    } catch (const OutOfMemory& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(call), HasSubstr("cudaErrorMemoryAllocation")));
      EXPECT_EQ(error.shortage().asked, 8 * kGranule);
      EXPECT_GT(error.shortage().would_have_fitted, 0U);
    }
    EXPECT_EQ(fake->mapped_bytes(), 0U) << call;
    EXPECT_EQ(device->counters().committed_bytes, 0U) << call;
  }
  device->commit(range);
  EXPECT_EQ(fake->mapped_bytes(), 8 * kGranule);
}

// A commit of eight granules fails, since other programs left only six. When the commit is undone, CUDA
// refuses to unmap the third granule. Regression: the driver forgot that mapped granule. The next commit
// mapped another one there, which CUDA reports as an invalid value, and the reservation could not be
// released.
class CudaDeviceThatLeftAGranule : public ::testing::Test {
 protected:
  CudaDeviceThatLeftAGranule() {
    fake_->take_memory(0, 2 * kGranule);
    fake_->fail_call(3, CudaStatus::kInvalidValue, "cuMemUnmap");
    EXPECT_THROW(device_->commit(range_), OutOfMemory);
    EXPECT_EQ(device_->counters().committed_bytes, 0U);
    EXPECT_EQ(fake_->mapped_bytes(), kGranule);
  }

  const std::shared_ptr<FakeCuda> fake_ =
      strict_fake({.memory_bytes = 8 * kGranule, .granule_bytes = kGranule});
  std::unique_ptr<Device> device_ = make_cuda_device({.reserve_bytes = 0}, fake_);
  const AddressRange range_ = device_->reserve(8 * kGranule);
};

TEST_F(CudaDeviceThatLeftAGranule, UsesItWhereItIsCommittedAgain) {
  device_->commit({.begin = range_.begin, .bytes = 2 * kGranule});
  EXPECT_EQ(fake_->mapped_bytes(), 3 * kGranule) << "only the two granules are new, not their whole range";
  const AddressRange around{.begin = range_.begin + 2 * kGranule, .bytes = 4 * kGranule};
  device_->commit(around);
  EXPECT_EQ(fake_->mapped_bytes(), 6 * kGranule);
  device_->decommit(around);
  device_->commit(around);
}

TEST_F(CudaDeviceThatLeftAGranule, NeedsNoMoreMemoryToCommitItAlone) {
  const AddressRange granule{.begin = range_.begin + 2 * kGranule, .bytes = kGranule};
  const std::uint64_t created = fake_->calls("cuMemCreate");
  device_->commit(granule);
  EXPECT_EQ(fake_->calls("cuMemCreate"), created);
  EXPECT_EQ(fake_->mapped_bytes(), kGranule);
  fake_->fail_call(1, CudaStatus::kInvalidValue, "cuMemUnmap");
  EXPECT_THAT(thrown_by([&] { device_->decommit(granule); }),
              AllOf(HasSubstr("cuMemUnmap"), HasSubstr("cudaErrorInvalidValue")));
  EXPECT_EQ(device_->counters().committed_bytes, kGranule);
  device_->decommit(granule);
  EXPECT_EQ(fake_->mapped_bytes(), 0U);
}

TEST_F(CudaDeviceThatLeftAGranule, UnmapsItBeforeItsReservationGoes) {
  device_->unreserve(range_);
  EXPECT_EQ(fake_->mapped_bytes(), 0U);
}

TEST_F(CudaDeviceThatLeftAGranule, UnmapsItAtTheEnd) {
  device_.reset();
  EXPECT_EQ(fake_->mapped_bytes(), 0U);
}

TEST(CudaDevice, ADecommitThatCudaRefusesCanBeFinishedLater) {
  const auto fake = strict_fake();
  const auto device = make_device(fake);
  const AddressRange range = device->reserve(4 * kGranule);
  device->commit(range);
  fake->fail_call(3, CudaStatus::kInvalidValue, "cuMemUnmap");
  EXPECT_THAT(thrown_by([&] { device->decommit(range); }),
              AllOf(HasSubstr("cuMemUnmap"), HasSubstr("cudaErrorInvalidValue")));
  const AddressRange rest{.begin = range.begin + 2 * kGranule, .bytes = 2 * kGranule};
  EXPECT_EQ(fake->mapped_bytes(), rest.bytes);
  EXPECT_THROW(device->commit(rest), InvalidArgument) << "still committed";
  device->commit({.begin = range.begin, .bytes = rest.bytes});
}

TEST(CudaDevice, ProfilersSeeTheNameOfWhatIsSubmitted) {
  const auto fake = strict_fake();
  const auto device = make_device(fake);
  const StreamId stream = device->create_stream("compute");
  const auto submit_named = [&](std::string_view name, bool fails) {
    device->submit(stream, {.name = name, .reads = {}, .writes = {}, .cost = {}, .run = [&](void*) {
                              EXPECT_THAT(fake->ranges(), ::testing::ElementsAre(name));
                              if (fails) {
                                throw DataError("a kernel is missing");
                              }
                            }});
    EXPECT_THAT(fake->ranges(), IsEmpty());
  };
  submit_named("conv1.forward", false);
  submit_named("conv1.backward", true);
  device->recover();
}

// --- failures ---------------------------------------------------------------------------------------------

// If CUDA refuses to unlock memory and the driver unmaps it, CUDA would take the next mapping at that address
// for page-locked memory. Regression: the driver unmapped such memory, even while the process and CUDA end.
TEST(CudaDevice, MemoryThatCudaKeepsPageLockedStaysMapped) {
  const auto fake = strict_fake();
  auto device = make_device(fake);
  device->allocate_pinned(5000);
  fake->fail_call(1, CudaStatus::kContextIsDestroyed, "cudaHostUnregister");
  device.reset();
  EXPECT_EQ(fake->failed_call(), "cudaHostUnregister");
}

TEST(CudaDevice, AFailedPageLockLeavesNoErrorForTheNextLaunchToFind) {
  const auto fake = strict_fake();
  const auto device = make_device(fake);
  const StreamId stream = device->create_stream("compute");
  fake->fail_call(1, CudaStatus::kMemoryAllocation, "cudaHostRegister");
  try {
    device->allocate_pinned(5000);
    ADD_FAILURE() << "page-locked";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.shortage().asked, 5000U);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("cuda:1: cudaHostRegister"), HasSubstr("cudaErrorMemoryAllocation")));
  }
  EXPECT_EQ(device->counters().pinned_bytes, 0U);
  // Regression: the error of cudaHostRegister surfaced here, as if it were the kernel's.
  submit_kernel(*device, stream, [] {});
  device->synchronize_all();
}

TEST(CudaDevice, WorkThatThrowsFailsLateAndItsStreamRefusesMoreUntilItRecovers) {
  const auto device = make_device(strict_fake());
  const StreamId a = device->create_stream("a");
  const StreamId b = device->create_stream("b");
  bool ran = false;
  submit(*device, a, [&ran](void* native) {
    launch(native, [&ran] { ran = true; });
    throw DataError("the second kernel is missing");
  });
  EXPECT_THAT(thrown_by([&] { submit_kernel(*device, a, [] {}); }), HasSubstr("second kernel"));
  submit_kernel(*device, b, [] {});
  device->synchronize(device->frontier(b));
  EXPECT_THROW(device->synchronize(device->frontier(a)), DataError);
  EXPECT_TRUE(ran);
  EXPECT_TRUE(device->reached(device->frontier(a)));
  device->recover();
  submit_kernel(*device, a, [] {});
  device->synchronize_all();
}

TEST(CudaDevice, ASubmissionThatCudaRefusedIsNoneAndTheNextTakesItsPlace) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const auto fake = strict_fake(small_gpus(seed));
    const auto device = make_device(fake);
    const StreamId a = device->create_stream("a");
    const StreamId b = device->create_stream("b");
    const AddressRange block = device->reserve(kGranule);
    device->commit(block);
    const AddressRange pinned = device->allocate_pinned(kGranule);
    fake->fail_call(1, CudaStatus::kInvalidValue, "cudaMemcpyAsync");
    EXPECT_THAT(thrown_by([&] {
                  device->copy(a, {.name = "offload",
                                   .direction = CopyDirection::kDeviceToHost,
                                   .destination = {.range = pinned},
                                   .source = {.range = block}});
                }),
                AllOf(HasSubstr("cudaMemcpyAsync(4 KiB"), HasSubstr("cudaErrorInvalidValue")));
    EXPECT_TRUE(device->frontier(a).empty());
    std::string order;
    submit_kernel(*device, a, [&order] { order += 'a'; });
    device->wait(b, device->frontier(a));
    submit_kernel(*device, b, [&order] { order += 'b'; });
    device->synchronize(device->frontier(b));
    EXPECT_EQ(order, "ab") << "seed " << seed;
  }
}

TEST(CudaDevice, ASubmissionWhoseEndCannotBeRecordedFailsLateAndIsStillWaitedFor) {
  const auto fake = strict_fake();
  const auto device = make_device(fake);
  const StreamId stream = device->create_stream("a");
  bool ran = false;
  fake->fail_call(1, CudaStatus::kInvalidValue, "cudaEventRecord");
  submit_kernel(*device, stream, [&ran] { ran = true; });
  EXPECT_THAT(thrown_by([&] { device->synchronize_all(); }),
              AllOf(HasSubstr("cudaEventRecord"), HasSubstr("cudaErrorInvalidValue")));
  EXPECT_TRUE(ran);
  EXPECT_THAT(thrown_by([&] { submit_kernel(*device, stream, [] {}); }), HasSubstr("cudaEventRecord"));
}

// Regression: the host waited immediately, even for collectives that other ranks never reached.
TEST(CudaDevice, TheHostDoesNotAtOnceWaitForASubmissionWhoseEndCannotBeRecorded) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const auto fake = strict_fake(small_gpus(seed));
    const auto device = make_device(fake);
    const StreamId a = device->create_stream("a");
    const StreamId b = device->create_stream("b");
    bool others_have_come = false;
    std::string order;
    fake->fail_call(1, CudaStatus::kInvalidValue, "cudaEventRecord");
    submit(*device, a, [&](void* native) {
      EXPECT_EQ(FakeCuda::hold(native, [&] { return others_have_come; }), CudaStatus::kSuccess);
      launch(native, [&order] { order += 'a'; });
    });
    EXPECT_FALSE(device->reached(device->frontier(a)));
    device->wait(b, device->frontier(a));
    submit_kernel(*device, b, [&order] { order += 'b'; });
    fake->rest();
    EXPECT_FALSE(device->reached(device->frontier(a)));
    EXPECT_EQ(order, "");
    others_have_come = true;
    EXPECT_THAT(thrown_by([&] { device->synchronize(device->frontier(a)); }), HasSubstr("cudaEventRecord"));
    EXPECT_TRUE(device->reached(device->frontier(a)));
    device->recover();
    EXPECT_EQ(order, "ab") << "seed " << seed;
    submit_kernel(*device, a, [&order] { order += 'c'; });
    device->synchronize_all();
    EXPECT_EQ(order, "abc") << "seed " << seed;
  }
}

TEST(CudaDevice, WorkThatIsBeingSubmittedIsNotDoneForAThreadThatSynchronizes) {
  const auto device = make_device(strict_fake());
  const StreamId a = device->create_stream("a");
  const StreamId b = device->create_stream("b");
  std::string order;
  submit(*device, a, [&](void* native) {
    device->synchronize({});  // in place of a call by another thread at this moment
    launch(native, [&order] { order += 'a'; });
  });
  device->wait(b, device->frontier(a));
  submit_kernel(*device, b, [&order] { order += 'b'; });
  EXPECT_FALSE(device->reached(device->frontier(a)));
  device->synchronize(device->frontier(b));
  EXPECT_EQ(order, "ab");
}

// The errors of all calls on a lost device.
std::vector<std::string> said_by_every_call(Device& device, StreamId stream) {
  const AddressRange some{.begin = kGranule, .bytes = kGranule};
  return {thrown_by([&] { device.reserve(1); }),
          thrown_by([&] { device.unreserve(some); }),
          thrown_by([&] { device.commit(some); }),
          thrown_by([&] { device.decommit(some); }),
          thrown_by([&] { device.allocate_pinned(1); }),
          thrown_by([&] { device.free_pinned(some); }),
          thrown_by([&] { device.create_stream("more"); }),
          thrown_by([&] { submit_kernel(device, stream, [] {}); }),
          thrown_by([&] { device.reached(device.frontier(stream)); }),
          thrown_by([&] { device.synchronize(device.frontier(stream)); }),
          thrown_by([&] { device.synchronize_all(); }),
          thrown_by([&] { device.recover(); })};
}

TEST(CudaDevice, AfterAKernelCorruptedTheContextEveryCallSaysTheFirstCause) {
  const auto fake = std::make_shared<FakeCuda>(small_gpus(0));
  const auto healthy = make_device(fake, 0);
  {
    const auto device = make_device(fake, 1);
    const StreamId stream = device->create_stream("compute");
    device->commit(device->reserve(kGranule));
    device->allocate_pinned(100);
    submit(*device, stream,
           [](void* native) { FakeCuda::launch_that_corrupts(native, CudaStatus::kIllegalAddress); });
    std::string first;
    try {
      device->synchronize_all();
      FAIL() << "no error was reported";
    } catch (const DeviceError& error) {
      EXPECT_TRUE(error.lost());
      first = error.what();
    }
    EXPECT_THAT(first, AllOf(HasSubstr("cuda:1"), HasSubstr("cudaErrorIllegalAddress"), HasSubstr("lost")));
    EXPECT_THAT(said_by_every_call(*device, stream), testing::Each(first));
    EXPECT_THROW(device->recover(), DeviceError);
  }
  // The other GPU is not affected.
  Tour(*healthy).run();
  EXPECT_THAT(fake->misuses(), IsEmpty());
}

// Regression: the driver did not know that the last two errors corrupt the context, and every later call
// failed with a different error.
TEST(CudaDevice, ErrorsThatCorruptTheContextLoseTheDevice) {
  for (const CudaStatus status : {CudaStatus::kLaunchFailure, CudaStatus::kEccUncorrectable,
                                  CudaStatus::kContained, CudaStatus::kExternalDevice}) {
    const auto fake = std::make_shared<FakeCuda>(small_gpus(0));
    const auto device = make_device(fake, 1);
    submit(*device, device->create_stream("compute"),
           [status](void* native) { FakeCuda::launch_that_corrupts(native, status); });
    try {
      device->synchronize_all();
      ADD_FAILURE() << "no error was reported";
    } catch (const DeviceError& error) {
      EXPECT_TRUE(error.lost()) << error.what();
    }
  }
}

// Each call of a tour fails once: with a harmless error, for lack of memory, and with an error that corrupts
// the context. The message names the call and nothing leaks. Unless the device is lost, a second tour
// succeeds.
class EveryCallFails : public testing::TestWithParam<std::tuple<CudaStatus, bool>> {};

TEST_P(EveryCallFails, IsReportedByNameAndLeaksNothing) {
  const auto [status, virtual_memory] = GetParam();
  // Without virtual memory, granules are not small.
  const std::uint64_t budget = virtual_memory ? kBudget : 8 << 20;
  std::uint64_t failed = 0;
  std::uint64_t unsaid = 0;
  for (bool all = false; !all; ++failed) {
    SCOPED_TRACE("call " + std::to_string(failed + 1));
    FakeCudaOptions gpus = small_gpus(failed);
    gpus.virtual_memory = virtual_memory;
    const auto fake = strict_fake(gpus);
    fake->fail_call(failed + 1, status);
    const std::string said = thrown_by([&, status = status] {
      const auto device = make_cuda_device(
          {.ordinal = 1, .budget_bytes = budget, .host_budget_bytes = kBudget, .peers = {0}}, fake);
      const std::string first = thrown_by([&] { Tour(*device).run(); });
      if (status == CudaStatus::kIllegalAddress && first != "nothing") {
        const StreamId stream = 0;
        EXPECT_THAT(thrown_by([&] { device->recover(); }), first);
        EXPECT_THAT(thrown_by([&] { device->create_stream("more"); }), first);
        EXPECT_THAT(thrown_by([&] { device->reached(Frontier({.stream = stream, .count = 1})); }), first);
      } else {
        device->recover();
        Tour(*device).run();
      }
      if (first != "nothing") {
        throw Error(first);
      }
    });
    all = fake->failed_call().empty();
    if (said == "nothing") {
      // No caller can receive failures to release memory or to restore the thread's state.
      EXPECT_THAT(fake->failed_call(),
                  AnyOf("", "cudaSetDevice", "cudaGetDevice", "cuDevicePrimaryCtxGetState", "cuCtxGetCurrent",
                        "cuCtxSetCurrent", "cudaThreadExchangeStreamCaptureMode", "cudaStreamSynchronize",
                        "cudaStreamDestroy", "cudaEventDestroy", "cudaGraphDestroy", "cudaGraphExecDestroy",
                        "cuMemUnmap", "cuMemAddressFree", "cudaFree", "cudaHostUnregister"));
      ++unsaid;
    } else {
      EXPECT_THAT(said, AllOf(HasSubstr(fake->failed_call()), HasSubstr(fake->error_name(status)),
                              HasSubstr("cuda:1")));
    }
    EXPECT_EQ(fake->get_last_error(), CudaStatus::kSuccess)
        << "the error is left for the program's next check";
  }
  std::cout << "  " << failed - 1 << " calls failed with " << FakeCuda().error_name(status) << ", of "
            << unsaid - 1 << " had no caller to report to\n";
}

INSTANTIATE_TEST_SUITE_P(Cuda, EveryCallFails,
                         testing::Combine(testing::Values(CudaStatus::kInvalidValue,
                                                          CudaStatus::kMemoryAllocation,
                                                          CudaStatus::kIllegalAddress),
                                          testing::Bool()));

}  // namespace
}  // namespace vdnn
