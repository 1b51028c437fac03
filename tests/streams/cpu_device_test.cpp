#include "vdnn/cpu_device.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "tests/streams/device_conformance.h"
#include "vdnn/error.h"

namespace vdnn::cpu_device_test {
namespace {

constexpr std::uint64_t kPage = 4096;

DeviceFactory factory(const std::string& name, const CpuDeviceOptions& options) {
  return {.name = name, .make = [options](std::uint64_t budget_bytes, std::uint64_t host_budget_bytes) {
            CpuDeviceOptions sized = options;
            sized.budget_bytes = budget_bytes;
            sized.host_budget_bytes = host_budget_bytes;
            return make_cpu_device(sized);
          }};
}

INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformance,
                         testing::Values(factory("Plain", {}),
                                         factory("PageAligned", {.page_aligned_blocks = true}),
                                         factory("Delays", {.delay_seed = 7}),
                                         factory("SlowLink", {.link_gbytes_per_second = 1}),
                                         factory("CheckAccesses", {.check_accesses = true})),
                         device_name);

// A device with two streams, four granules of committed memory and as much page-locked memory.
struct CpuFixture {
  explicit CpuFixture(CpuDeviceOptions options = {}) {
    options.budget_bytes = 1 << 20;
    options.host_budget_bytes = 1 << 20;
    device = make_cpu_device(options);
    a = device->create_stream("a");
    b = device->create_stream("b");
    block = device->reserve(4 * device->properties().granule_bytes);
    device->commit(block);
    pinned = device->allocate_pinned(block.bytes);
  }

  static AddressRange part(AddressRange range, std::uint64_t begin, std::uint64_t bytes) {
    return {.begin = range.begin + begin, .bytes = bytes};
  }
  AddressRange on_device(std::uint64_t begin, std::uint64_t bytes) const { return part(block, begin, bytes); }
  AddressRange on_host(std::uint64_t begin, std::uint64_t bytes) const { return part(pinned, begin, bytes); }

  Point work(StreamId stream, std::string_view name, const std::vector<Access>& reads,
             const std::vector<Access>& writes, std::function<void()> run) const {
    return device->submit(
        stream,
        {.name = name, .reads = reads, .writes = writes, .cost = {}, .run = [run = std::move(run)](void*) {
           run();
         }});
  }
  Point work(StreamId stream, std::string_view name, std::function<void()> run) const {
    return work(stream, name, {}, {}, std::move(run));
  }
  Point offload(StreamId stream, std::string_view name, AddressRange destination, AddressRange source) const {
    return device->copy(stream, {.name = name,
                                 .direction = CopyDirection::kDeviceToHost,
                                 .destination = {.range = destination},
                                 .source = {.range = source}});
  }
  Point prefetch(StreamId stream, std::string_view name, AddressRange destination,
                 AddressRange source) const {
    return device->copy(stream, {.name = name,
                                 .direction = CopyDirection::kHostToDevice,
                                 .destination = {.range = destination},
                                 .source = {.range = source}});
  }

  std::unique_ptr<Device> device;
  StreamId a = 0;
  StreamId b = 0;
  AddressRange block;
  AddressRange pinned;
};

std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

// --- options and properties --------------------------------------------------------------------------------

TEST(CpuDevice, SaysWhatItIs) {
  const DeviceProperties plain = make_cpu_device({})->properties();
  EXPECT_EQ(plain.name, "cpu");
  EXPECT_EQ(plain.granule_bytes, 64U << 10);
  EXPECT_EQ(plain.alignment_bytes, 256U);
  EXPECT_EQ(plain.library_bytes, 0U);
  EXPECT_TRUE(plain.touches_memory);
  EXPECT_EQ(plain.budget_bytes, plain.memory_bytes / 2 / plain.granule_bytes * plain.granule_bytes);
  EXPECT_EQ(plain.host_budget_bytes, plain.memory_bytes / 2);
  EXPECT_EQ(make_cpu_device({.page_aligned_blocks = true})->properties().alignment_bytes, kPage);
  EXPECT_EQ(make_cpu_device({.check_accesses = true})->properties().alignment_bytes, kPage);
}

TEST(CpuDevice, OptionsThatCannotBeAreRefused) {
  for (const double rate : {0.0, -1.0, std::nan("")}) {
    EXPECT_THROW(make_cpu_device({.link_gbytes_per_second = rate}), InvalidArgument) << rate;
  }
  EXPECT_THROW(make_cpu_device({.budget_bytes = 1}), InvalidArgument);
}

TEST(CpuDevice, AddressSpaceThatCannotBeHadIsOutOfMemory) {
  const auto device = make_cpu_device({});
  try {
    device->reserve(std::uint64_t{1} << 62);
    FAIL() << "reserved";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.shortage().asked, std::uint64_t{1} << 62);
  }
}

bool mapped(std::uint64_t address) {
  unsigned char resident = 0;
  return mincore(pointer_to<void>(address / kPage * kPage), kPage, &resident) == 0;
}

TEST(CpuDevice, UnmapsWhatIsLeftBehind) {
  constexpr std::uint64_t kBytes = std::uint64_t{1}
                                   << 30;  // large, so that no other mapping reuses the addresses
  AddressRange reservation;
  AddressRange pinned;
  {
    const auto device = make_cpu_device({.host_budget_bytes = kBytes});
    reservation = device->reserve(kBytes);
    device->commit({.begin = reservation.begin, .bytes = device->properties().granule_bytes});
    pinned = device->allocate_pinned(64 << 20);
    EXPECT_TRUE(mapped(reservation.begin));
    EXPECT_TRUE(mapped(pinned.begin));
  }
  EXPECT_FALSE(mapped(reservation.begin + kBytes / 2));
  EXPECT_FALSE(mapped(pinned.begin + (32 << 20)));
}

TEST(CpuDevice, PinnedMemoryIsThereWhenItIsTaken) {
  const CpuFixture cpu;
  std::vector<unsigned char> resident(cpu.pinned.bytes / kPage);
  ASSERT_EQ(mincore(pointer_to<void>(cpu.pinned.begin), cpu.pinned.bytes, resident.data()), 0);
  for (const unsigned char page : resident) {
    EXPECT_EQ(page & 1U, 1U);
  }
}

// --- copy engines ------------------------------------------------------------------------------------------

// Forces copies to overlap. A copy that reaches a gated page faults, and the handler holds it until the
// awaited number of copies has arrived. Then the handler opens the page.
class Gates {
 public:
  static constexpr std::size_t kPages = 2;

  Gates(std::array<AddressRange, kPages> pages, int awaited) {
    state().inside = state().most_inside = state().passed = 0;
    for (std::size_t i = 0; i < kPages; ++i) {
      state().pages[i] = pages[i].begin;
      mprotect(pointer_to<void>(pages[i].begin), kPage, PROT_NONE);
    }
    state().awaited = awaited;
    struct sigaction action {};
    action.sa_sigaction = &hold;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &previous_);
  }
  ~Gates() { sigaction(SIGSEGV, &previous_, nullptr); }
  Gates(const Gates&) = delete;
  Gates& operator=(const Gates&) = delete;

  static int most_inside() { return state().most_inside.load(); }
  static int passed() { return state().passed.load(); }

 private:
  struct State {
    std::array<std::uint64_t, kPages> pages{};
    int awaited = 0;
    std::atomic<int> inside{0};
    std::atomic<int> most_inside{0};
    std::atomic<int> passed{0};
  };
  static State& state() {
    static State the_state;
    return the_state;
  }

  static void hold(int number, siginfo_t* info, void*) {
    State& gates = state();
    const std::uint64_t page = reinterpret_cast<std::uintptr_t>(info->si_addr) / kPage * kPage;
    if (page != gates.pages[0] && page != gates.pages[1]) {
      signal(number, SIG_DFL);
      return;
    }
    const int inside = gates.inside.fetch_add(1) + 1;
    int most = gates.most_inside.load();
    while (most < inside && !gates.most_inside.compare_exchange_weak(most, inside)) {
    }
    // Copies that arrive here have started. The bound on the turns only ends a failing test.
    for (long turn = 0; gates.most_inside.load() < gates.awaited && turn < kMostTurns; ++turn) {
      sched_yield();
    }
    // If no overlap is expected, this gives the other thread time to arrive.
    for (int turn = 0; turn < 1000; ++turn) {
      sched_yield();
    }
    gates.passed.fetch_add(1);
    gates.inside.fetch_sub(1);
    mprotect(pointer_to<void>(page), kPage, PROT_READ | PROT_WRITE);
  }

  static constexpr long kMostTurns = 20'000'000;
  struct sigaction previous_ {};
};

TEST(CpuCopyEngines, RunBothDirectionsAtOnce) {
  const CpuFixture cpu;
  const Gates gates({cpu.on_host(0, kPage), cpu.on_host(kPage, kPage)}, 2);
  cpu.offload(cpu.a, "offload", cpu.on_host(0, kPage), cpu.on_device(0, kPage));
  cpu.prefetch(cpu.b, "prefetch", cpu.on_device(kPage, kPage), cpu.on_host(kPage, kPage));
  cpu.device->synchronize_all();
  EXPECT_EQ(Gates::passed(), 2);
  EXPECT_EQ(Gates::most_inside(), 2) << "each copy waited in vain for the other one to start";
}

TEST(CpuCopyEngines, RunOneCopyADirection) {
  for (int round = 0; round < 5; ++round) {
    const CpuFixture cpu;
    const Gates gates({cpu.on_host(0, kPage), cpu.on_host(kPage, kPage)}, 1);
    cpu.offload(cpu.a, "offload 1", cpu.on_host(0, kPage), cpu.on_device(0, kPage));
    cpu.offload(cpu.b, "offload 2", cpu.on_host(kPage, kPage), cpu.on_device(kPage, kPage));
    cpu.device->synchronize_all();
    EXPECT_EQ(Gates::passed(), 2);
    EXPECT_EQ(Gates::most_inside(), 1);
  }
}

TEST(CpuCopyEngines, ASlowLinkTakesAtLeastBytesOverRate) {
  const CpuFixture cpu({.link_gbytes_per_second = 0.01});
  cpu.device->set_tracing(true);
  cpu.offload(cpu.a, "offload", cpu.on_host(0, 200'000), cpu.on_device(0, 200'000));
  cpu.prefetch(cpu.b, "prefetch", cpu.on_device(200'000, 50'000), cpu.on_host(200'000, 50'000));
  cpu.device->synchronize_all();
  EXPECT_GE(cpu.device->times(cpu.a).busy_seconds, 0.020);
  EXPECT_GE(cpu.device->times(cpu.b).busy_seconds, 0.005);
  for (const TraceEvent& event : cpu.device->take_trace()) {
    EXPECT_GE(event.end_seconds - event.begin_seconds, event.name == "offload" ? 0.020 : 0.005) << event.name;
  }
}

TEST(CpuCopyEngines, CopiesOnOneSlowLinkDoNotOverlapInTheTrace) {
  const CpuFixture cpu({.link_gbytes_per_second = 0.1});
  cpu.device->set_tracing(true);
  for (int i = 0; i < 5; ++i) {
    cpu.offload(cpu.a, "offload", cpu.on_host(0, 10'000), cpu.on_device(0, 10'000));
    cpu.offload(cpu.b, "offload", cpu.on_host(10'000, 10'000), cpu.on_device(0, 10'000));
  }
  cpu.device->synchronize_all();
  std::vector<TraceEvent> trace = cpu.device->take_trace();
  std::ranges::sort(trace, {}, &TraceEvent::begin_seconds);
  ASSERT_EQ(trace.size(), 10U);
  for (std::size_t i = 1; i < trace.size(); ++i) {
    EXPECT_LE(trace[i - 1].end_seconds, trace[i].begin_seconds);
  }
}

// --- failures ---------------------------------------------------------------------------------------------

TEST(CpuFailures, SurfaceAtSynchronizeAsWhatTheWorkThrew) {
  const CpuFixture cpu;
  const Point good = cpu.work(cpu.a, "good", [] {});
  const Point bad = cpu.work(cpu.a, "bad", [] { throw std::out_of_range("first cause"); });
  EXPECT_THROW(cpu.device->synchronize(Frontier(bad)), std::out_of_range);
  EXPECT_EQ(thrown_by([&] { cpu.device->synchronize(Frontier(bad)); }), "first cause")
      << "every synchronize reports the error again";
  EXPECT_EQ(thrown_by([&] { cpu.device->synchronize_all(); }), "first cause");
  cpu.device->synchronize(Frontier(good));
}

TEST(CpuFailures, SkipWhatFollowsOnTheStreamAndStillReachIt) {
  const CpuFixture cpu;
  std::atomic<bool> go = false;
  std::atomic<int> ran = 0;
  cpu.work(cpu.a, "held", [&go] { go.wait(false); });
  cpu.work(cpu.a, "bad", [] { throw std::runtime_error("first cause"); });
  const Point skipped = cpu.work(cpu.a, "skipped", [&ran] { ++ran; });
  cpu.offload(cpu.a, "skipped copy", cpu.on_host(0, 1), cpu.on_device(0, 1));
  const Point worse = cpu.work(cpu.a, "worse", [] { throw std::runtime_error("second cause"); });
  go = true;
  go.notify_all();
  EXPECT_EQ(thrown_by([&] { cpu.device->synchronize(Frontier(worse)); }), "first cause");
  EXPECT_TRUE(cpu.device->reached(Frontier(worse)));
  EXPECT_EQ(thrown_by([&] { cpu.device->synchronize(Frontier(skipped)); }), "first cause");
  EXPECT_EQ(ran, 0);
}

TEST(CpuFailures, MakeTheStreamRefuseWorkWithTheSameCause) {
  const CpuFixture cpu;
  const Point bad = cpu.work(cpu.a, "bad", [] { throw std::runtime_error("first cause"); });
  EXPECT_THROW(cpu.device->synchronize(Frontier(bad)), std::runtime_error);
  EXPECT_EQ(thrown_by([&] { cpu.work(cpu.a, "refused", [] {}); }), "first cause");
  EXPECT_EQ(thrown_by([&] { cpu.offload(cpu.a, "refused", cpu.on_host(0, 1), cpu.on_device(0, 1)); }),
            "first cause");
  // Refused work is not a submission, so nothing waits for it.
  EXPECT_EQ(cpu.device->frontier(cpu.a), Frontier(bad));
  cpu.device->wait(cpu.b, cpu.device->frontier(cpu.a));
  EXPECT_EQ(thrown_by([&] { cpu.device->synchronize_all(); }), "first cause");
  EXPECT_TRUE(cpu.device->reached(cpu.device->frontier(cpu.a)));
}

// Regression: after one failure a stream refused work for the rest of the device's life.
TEST(CpuFailures, AreForgottenByRecover) {
  const CpuFixture cpu;
  cpu.work(cpu.a, "bad", [] { throw std::runtime_error("first cause"); });
  cpu.work(cpu.b, "bad as well", [] { throw std::runtime_error("second cause"); });
  cpu.device->recover();
  std::atomic<int> ran = 0;
  cpu.work(cpu.a, "after", [&ran] { ++ran; });
  cpu.work(cpu.b, "after", [&ran] { ++ran; });
  cpu.device->synchronize_all();
  EXPECT_EQ(ran, 2);
}

TEST(CpuFailures, LeaveOtherStreamsRunning) {
  const CpuFixture cpu;
  std::atomic<int> ran = 0;
  cpu.work(cpu.a, "bad", [] { throw std::runtime_error("first cause"); });
  cpu.device->wait(cpu.b, cpu.device->frontier(cpu.a));
  const Point after = cpu.work(cpu.b, "after", [&ran] { ++ran; });
  cpu.device->synchronize(Frontier(after));
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(thrown_by([&] { cpu.device->synchronize(cpu.device->frontier(cpu.b)); }), "first cause");
  cpu.device->synchronize(Frontier(cpu.work(cpu.b, "more", [&ran] { ++ran; })));
  EXPECT_EQ(ran, 2);
}

TEST(CpuFailures, OfSeveralStreamsTheFirstIsReported) {
  const CpuFixture cpu;
  cpu.work(cpu.b, "first", [] { throw std::runtime_error("cause on b"); });
  cpu.device->wait(cpu.a, cpu.device->frontier(cpu.b));
  const Point second = cpu.work(cpu.a, "second", [] { throw std::runtime_error("cause on a"); });
  EXPECT_EQ(thrown_by([&] { cpu.device->synchronize(cpu.device->frontier(cpu.a)); }), "cause on b");
  EXPECT_EQ(thrown_by([&] { cpu.device->synchronize(Frontier(second)); }), "cause on a");
}

TEST(CpuFailures, DoNotHangOrEscapeDestruction) {
  CpuFixture cpu;
  cpu.work(cpu.a, "bad", [] { throw std::runtime_error("never asked for"); });
  cpu.device->wait(cpu.b, cpu.device->frontier(cpu.a));
  cpu.work(cpu.b, "after", [] {});
  cpu.device.reset();
}

TEST(CpuFailures, ACopyOfMemoryThatIsNotCommittedIsOne) {
  const CpuFixture cpu;
  const AddressRange nowhere = cpu.device->reserve(kPage);
  cpu.offload(cpu.a, "offload x", cpu.on_host(0, 100), {.begin = nowhere.begin, .bytes = 100});
  const std::string text = thrown_by([&] { cpu.device->synchronize_all(); });
  EXPECT_NE(text.find("offload x"), std::string::npos) << text;
}

TEST(CpuDevice, WorkIsLetGoBeforeItsPointIsReached) {
  const CpuFixture cpu;
  for (int i = 0; i < 100; ++i) {
    const auto held = std::make_shared<int>(i);
    const Point point = cpu.work(cpu.a, "work", [held] {});
    cpu.device->synchronize(Frontier(point));
    EXPECT_EQ(held.use_count(), 1);
  }
}

// --- time -------------------------------------------------------------------------------------------------

TEST(CpuDevice, TimeBlockedOnAnotherStreamIsWaiting) {
  const CpuFixture cpu;
  cpu.device->set_tracing(true);
  std::vector<TraceEvent> waits;
  // A trace has bars only for waits of more than 10 us. Since the length of a wait depends on the scheduler,
  // the test repeats until b waits that long.
  for (int attempt = 0; attempt < 1000 && waits.empty(); ++attempt) {
    std::atomic<bool> waiting = false;
    cpu.work(cpu.a, "long", [&] {
      waiting.wait(false);
      const double until = cpu.device->now_seconds() + 1e-3;
      while (cpu.device->now_seconds() < until) {
        std::this_thread::yield();
      }
    });
    cpu.work(cpu.b, "ready", [&] {
      waiting = true;
      waiting.notify_all();
    });
    cpu.device->wait(cpu.b, cpu.device->frontier(cpu.a));
    cpu.work(cpu.b, "after", [] {});
    cpu.device->synchronize_all();
    waits = cpu.device->take_trace();
    std::erase_if(waits, [](const TraceEvent& event) { return event.kind != TraceEvent::Kind::kWait; });
  }
  ASSERT_EQ(waits.size(), 1U);
  EXPECT_EQ(waits[0].stream, cpu.b);
  EXPECT_EQ(waits[0].name, "wait for a");
  EXPECT_GT(waits[0].end_seconds - waits[0].begin_seconds, 10e-6);
  EXPECT_GE(cpu.device->times(cpu.b).waiting_seconds, waits[0].end_seconds - waits[0].begin_seconds);
  EXPECT_EQ(cpu.device->times(cpu.a).waiting_seconds, 0);
}

// --- delays -----------------------------------------------------------------------------------------------

// Two streams pass one buffer back and forth; the result depends on the order of every step.
std::vector<std::uint32_t> ping_pong(const CpuDeviceOptions& options) {
  const CpuFixture cpu(options);
  constexpr std::uint64_t kWords = 1000;
  const AddressRange buffer = cpu.on_device(0, kWords * sizeof(std::uint32_t));
  const AddressRange host = cpu.on_host(0, buffer.bytes);
  auto* const words = pointer_to<std::uint32_t>(buffer.begin);
  cpu.work(cpu.a, "fill", {}, {{.range = buffer}}, [=] { std::iota(words, words + kWords, 0U); });
  for (std::uint32_t step = 1; step <= 12; ++step) {
    const StreamId here = step % 2 == 0 ? cpu.a : cpu.b;
    const StreamId there = step % 2 == 0 ? cpu.b : cpu.a;
    cpu.device->wait(here, cpu.device->frontier(there));
    cpu.work(here, "step", {{.range = buffer}}, {{.range = buffer}}, [=] {
      for (std::uint64_t i = 0; i < kWords; ++i) {
        words[i] = words[i] * 2654435761U + step;
      }
    });
    cpu.offload(here, "offload", host, buffer);
    cpu.work(here, "scratch", {}, {{.range = buffer}}, [=] { std::fill_n(words, kWords, step); });
    cpu.prefetch(here, "prefetch", buffer, host);
  }
  cpu.device->synchronize_all();
  const auto* const results = pointer_to<std::uint32_t>(host.begin);
  return {results, results + kWords};
}

TEST(CpuDelays, ChangeNothing) {
  const std::vector<std::uint32_t> expected = ping_pong({});
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    EXPECT_EQ(ping_pong({.delay_seed = seed}), expected) << "delay_seed " << seed;
  }
}

TEST(CpuDelays, ChangeNothingWithCheckedAccesses) {
  EXPECT_EQ(ping_pong({.check_accesses = true}), ping_pong({}));
  EXPECT_EQ(ping_pong({.delay_seed = 3, .check_accesses = true}), ping_pong({}));
}

// --- protection -------------------------------------------------------------------------------------------

TEST(CpuProtection, OfARangeThatCannotBeIsALateFailure) {
  const CpuFixture cpu({.page_aligned_blocks = true});
  cpu.device->protect(cpu.a, cpu.on_device(1, kPage), Protection::kInaccessible);
  EXPECT_THROW(cpu.device->synchronize_all(), InvalidArgument);
  const AddressRange nowhere = cpu.device->reserve(kPage);
  cpu.device->protect(cpu.b, nowhere, Protection::kInaccessible);
  EXPECT_THROW(cpu.device->synchronize(cpu.device->frontier(cpu.b)), InvalidArgument);
}

TEST(CpuProtection, ContentsSurviveIt) {
  const CpuFixture cpu({.page_aligned_blocks = true});
  const AddressRange page = cpu.on_device(kPage, kPage);
  cpu.work(cpu.a, "write", {}, {{.range = page}}, [page] { *pointer_to<int>(page.begin) = 42; });
  cpu.device->protect(cpu.a, page, Protection::kInaccessible);
  cpu.device->protect(cpu.a, page, Protection::kAccessible);
  int seen = 0;
  cpu.work(cpu.a, "read", {{.range = page}}, {}, [page, &seen] { seen = *pointer_to<int>(page.begin); });
  cpu.device->synchronize_all();
  EXPECT_EQ(seen, 42);
}

TEST(CpuAccessCheck, MemoryCommittedWhileWorkRunsIsUsableAfterwards) {
  const CpuFixture cpu({.check_accesses = true});
  const AddressRange later = cpu.device->reserve(kPage);
  std::atomic<bool> running = false;
  std::atomic<bool> go = false;
  cpu.work(cpu.a, "held", [&] {
    running = true;
    running.notify_all();
    go.wait(false);
  });
  running.wait(false);
  cpu.device->commit(later);
  const Access access{.range = {.begin = later.begin, .bytes = 8}};
  go = true;
  go.notify_all();
  cpu.work(cpu.b, "write", {}, {access}, [later] { *pointer_to<int>(later.begin) = 1; });
  cpu.device->synchronize_all();
  EXPECT_EQ(*pointer_to<int>(later.begin), 1) << "the host is not restricted once work is done";
}

TEST(CpuAccessCheck, AFailureLiftsTheRestriction) {
  const CpuFixture cpu({.check_accesses = true});
  cpu.work(cpu.a, "bad", [] { throw std::runtime_error("cause"); });
  EXPECT_THROW(cpu.device->synchronize_all(), std::runtime_error);
  *pointer_to<int>(cpu.block.begin) = 1;
}

TEST(CpuAccessCheck, LeavesTheSignalAsItWas) {
  struct sigaction before {};
  sigaction(SIGSEGV, nullptr, &before);
  {
    const CpuFixture one({.check_accesses = true});
    const CpuFixture two({.check_accesses = true});
    struct sigaction meanwhile {};
    sigaction(SIGSEGV, nullptr, &meanwhile);
    EXPECT_NE(meanwhile.sa_sigaction, before.sa_sigaction);
  }
  struct sigaction after {};
  sigaction(SIGSEGV, nullptr, &after);
  EXPECT_EQ(after.sa_sigaction, before.sa_sigaction);
}

// --- what ends the process --------------------------------------------------------------------------------

class CpuDeath : public testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer does not survive the fork of a process with threads";
#endif
    // The process has had threads, so death tests start a fresh process instead of a fork.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }

  // Runs `run` as work "conv1" on a device that checks accesses. The work declares page 0 as read and the
  // first `written_bytes` of page 1 as written.
  static void run_checked(std::uint64_t written_bytes, const std::function<void(char* block)>& run) {
    const CpuFixture cpu({.check_accesses = true});
    cpu.work(cpu.a, "conv1", {{.range = cpu.on_device(0, kPage)}},
             {{.range = cpu.on_device(kPage, written_bytes)}},
             [&] { run(pointer_to<char>(cpu.block.begin)); });
    cpu.device->synchronize_all();
  }
};

TEST_F(CpuDeath, ProtectedMemoryFaults) {
  EXPECT_DEATH(
      {
        const CpuFixture cpu({.page_aligned_blocks = true});
        const AddressRange page = cpu.on_device(kPage, kPage);
        cpu.device->protect(cpu.a, page, Protection::kInaccessible);
        cpu.work(cpu.a, "use after release", {}, {}, [page] { *pointer_to<volatile char>(page.begin) = 1; });
        cpu.device->synchronize_all();
      },
      "");
}

TEST_F(CpuDeath, DecommittedMemoryFaults) {
  EXPECT_DEATH(
      {
        const CpuFixture cpu;
        cpu.device->decommit(cpu.block);
        *pointer_to<volatile char>(cpu.block.begin) = 1;
      },
      "");
}

TEST_F(CpuDeath, DeclaredAccessesAreFine) {
  run_checked(100, [](volatile char* block) { block[kPage + 99] = block[kPage - 1]; });
}

#ifdef __SANITIZE_ADDRESS__
// The sanitizer stops instrumented code before it faults.
constexpr const char* kCaught = "use-after-poison";
#else
constexpr const char* kCaught = "vdnn: work 'conv1' touched an address .*0x[0-9a-f]+000";
#endif

TEST_F(CpuDeath, AnUndeclaredPageEndsTheProcess) {
  EXPECT_DEATH(run_checked(kPage, [](volatile char* block) { block[2 * kPage] = 1; }), kCaught);
  EXPECT_DEATH(run_checked(kPage, [](volatile char* block) { static_cast<void>(block[2 * kPage]); }),
               kCaught);
}

// The page is readable and not poisoned, so with and without sanitizers the write faults, and the message
// names the work.
TEST_F(CpuDeath, AWriteToWhatWasDeclaredAsReadEndsTheProcessAndNamesTheWork) {
  EXPECT_EXIT(run_checked(kPage, [](volatile char* block) { block[0] = 1; }),
              testing::KilledBySignal(SIGSEGV), "vdnn: work 'conv1' touched an address .*0x[0-9a-f]+000");
}

TEST_F(CpuDeath, AReleasedBlockIsInaccessibleThoughDeclared) {
  EXPECT_EXIT(
      {
        const CpuFixture cpu({.check_accesses = true});
        const AddressRange page = cpu.on_device(kPage, kPage);
        cpu.device->protect(cpu.a, page, Protection::kInaccessible);
        cpu.work(cpu.a, "in between", [] {});
        cpu.work(cpu.a, "conv1", {}, {{.range = page}},
                 [page] { *pointer_to<volatile char>(page.begin) = 1; });
        cpu.device->synchronize_all();
      },
      testing::KilledBySignal(SIGSEGV), "vdnn: work 'conv1' touched an address");
}

TEST_F(CpuDeath, AReleasedBlockStaysInaccessibleToTheHostAfterWork) {
  EXPECT_DEATH(
      {
        const CpuFixture cpu({.check_accesses = true});
        const AddressRange page = cpu.on_device(kPage, kPage);
        cpu.device->protect(cpu.a, page, Protection::kInaccessible);
        cpu.work(cpu.a, "in between", [] {});
        cpu.device->synchronize_all();
        *pointer_to<volatile char>(page.begin) = 1;
      },
      "");
}

// Work cannot have declared memory that is committed while the work runs.
TEST_F(CpuDeath, MemoryCommittedMeanwhileIsUndeclared) {
  const auto write_it = [] {
    const CpuFixture cpu({.check_accesses = true});
    const AddressRange later = cpu.device->reserve(kPage);
    cpu.work(cpu.a, "conv1", [&] {
      cpu.device->commit(later);
      *pointer_to<volatile char>(later.begin) = 1;
    });
    cpu.device->synchronize_all();
  };
  EXPECT_DEATH(write_it(), kCaught);
}

TEST_F(CpuDeath, OneByteBeyondTheDeclaredOnesEndsTheProcess) {
#ifndef __SANITIZE_ADDRESS__
  run_checked(100, [](volatile char* block) { block[kPage + 100] = 1; });
  GTEST_SKIP() << "only an AddressSanitizer build distinguishes bytes within a page";
#endif
  EXPECT_DEATH(run_checked(100, [](volatile char* block) { block[kPage + 100] = 1; }), "use-after-poison");
  EXPECT_DEATH(run_checked(100, [](volatile char* block) { static_cast<void>(block[kPage + 100]); }),
               "use-after-poison");
}

}  // namespace
}  // namespace vdnn::cpu_device_test
