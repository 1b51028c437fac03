#include "tests/streams/device_conformance.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <utility>

#include "vdnn/error.h"

namespace vdnn {

namespace {

const TraceEvent& named(const std::vector<TraceEvent>& trace, std::string_view name) {
  const auto it = std::ranges::find(trace, name, &TraceEvent::name);
  if (it == trace.end()) {
    throw InvalidArgument("not in the trace: " + std::string(name));
  }
  return *it;
}

std::vector<TraceEvent> of_kind(std::vector<TraceEvent> trace, TraceEvent::Kind kind) {
  std::erase_if(trace, [kind](const TraceEvent& event) { return event.kind != kind; });
  return trace;
}

AddressRange part(AddressRange range, std::uint64_t begin, std::uint64_t bytes) {
  return {.begin = range.begin + begin, .bytes = bytes};
}

void expect_equal(const DeviceCounters& actual, const DeviceCounters& expected) {
  EXPECT_EQ(actual.commits, expected.commits);
  EXPECT_EQ(actual.decommits, expected.decommits);
  EXPECT_EQ(actual.committed_bytes, expected.committed_bytes);
  EXPECT_EQ(actual.peak_committed_bytes, expected.peak_committed_bytes);
  EXPECT_EQ(actual.pinned_allocations, expected.pinned_allocations);
  EXPECT_EQ(actual.pinned_frees, expected.pinned_frees);
  EXPECT_EQ(actual.pinned_bytes, expected.pinned_bytes);
  EXPECT_EQ(actual.peak_pinned_bytes, expected.peak_pinned_bytes);
}

}  // namespace

DeviceConformance::DeviceConformance() {
  // The driver determines the granule: query it, then make the device under test.
  granule = GetParam().make(std::uint64_t{1} << 30, kHostBudget)->properties().granule_bytes;
  device = GetParam().make(kGranules * granule, kHostBudget);
}

std::string DeviceConformance::why_not_run() const {
  if (device->properties().touches_memory) {
    return "";
  }
  const std::unique_ptr<Device> probe = GetParam().make(kGranules * granule, kHostBudget);
  std::atomic<bool> ran = false;
  probe->submit(
      probe->create_stream("probe"),
      {.name = "probe", .reads = {}, .writes = {}, .cost = {}, .run = on_device([&ran] { ran = true; })});
  probe->synchronize_all();
  EXPECT_FALSE(ran) << "touches_memory is false, yet work runs, so this case must not be skipped";
  return probe->properties().name + " does not touch memory: work is not run, copies move nothing";
}

std::function<void(void*)> DeviceConformance::on_device(std::function<void()> body) {
  return [body = std::move(body)](void* native_stream) {
    if (body && GetParam().launch) {
      GetParam().launch(native_stream, body);
    } else if (body) {
      body();
    }
  };
}

std::function<void(void*)> DeviceConformance::moving(void* to, const void* from, std::size_t bytes) {
  if (!GetParam().move) {
    return on_device([=] { std::memcpy(to, from, bytes); });
  }
  return [=](void* native_stream) { GetParam().move(native_stream, to, from, bytes); };
}

Point DeviceConformance::submit(StreamId stream, std::string_view name, std::span<const Access> reads,
                                std::span<const Access> writes, std::function<void(void*)> run) {
  return device->submit(stream, {.name = name,
                                 .reads = reads,
                                 .writes = writes,
                                 .cost = {.flops = 1e6, .bytes = 1e6},
                                 .run = std::move(run)});
}

Point DeviceConformance::work(StreamId stream, std::string_view name, std::function<void()> run) {
  return submit(stream, name, {}, {}, on_device(std::move(run)));
}

Point DeviceConformance::write(StreamId stream, std::string_view name, AddressRange range,
                               std::span<const std::uint8_t> contents) {
  const Access access{.range = range};
  return submit(stream, name, {}, {&access, 1},
                contents.empty()
                    ? on_device({})
                    : moving(pointer_to<void>(range.begin), contents.data(), contents.size_bytes()));
}

Point DeviceConformance::read(StreamId stream, std::string_view name, AddressRange range,
                              std::span<std::uint8_t> into) {
  const Access access{.range = range};
  return submit(stream, name, {&access, 1}, {},
                moving(into.data(), pointer_to<void>(range.begin), into.size_bytes()));
}

Point DeviceConformance::copy(StreamId stream, std::string_view name, CopyDirection direction,
                              AddressRange destination, AddressRange source) {
  return device->copy(stream, {.name = name,
                               .direction = direction,
                               .destination = {.range = destination},
                               .source = {.range = source}});
}

AddressRange DeviceConformance::committed(std::uint64_t granules) const {
  const AddressRange range = device->reserve(granules * granule);
  device->commit(range);
  return range;
}

std::vector<TraceEvent> DeviceConformance::synchronized_work() const {
  device->synchronize_all();
  return of_kind(device->take_trace(), TraceEvent::Kind::kWork);
}

// --- properties -------------------------------------------------------------------------------------------

TEST_P(DeviceConformance, PropertiesFitEachOther) {
  const DeviceProperties& properties = device->properties();
  EXPECT_FALSE(properties.name.empty());
  EXPECT_GT(properties.memory_bytes, 0U);
  EXPECT_TRUE(std::has_single_bit(properties.granule_bytes));
  EXPECT_TRUE(std::has_single_bit(properties.alignment_bytes));
  EXPECT_LE(properties.alignment_bytes, properties.granule_bytes);
  EXPECT_EQ(properties.budget_bytes, kGranules * granule);
  EXPECT_EQ(properties.host_budget_bytes, kHostBudget);
  EXPECT_LE(properties.budget_bytes + properties.library_bytes, properties.memory_bytes);
}

TEST_P(DeviceConformance, ABudgetIsRoundedDownToGranules) {
  const auto odd = GetParam().make(2 * granule + granule / 2 + 1, kHostBudget);
  EXPECT_EQ(odd->properties().budget_bytes, 2 * granule);
}

// --- device memory ----------------------------------------------------------------------------------------

TEST_P(DeviceConformance, AReservationIsAlignedWholeGranulesAndCountsNothing) {
  const AddressRange a = device->reserve(granule + 1);
  const AddressRange b = device->reserve(100 * kGranules * granule);
  EXPECT_EQ(a.bytes, 2 * granule);
  EXPECT_EQ(a.begin % granule, 0U);
  EXPECT_FALSE(a.overlaps(b));
  expect_equal(device->counters(), {});
  device->unreserve(a);
  device->unreserve(b);
}

TEST_P(DeviceConformance, CommitBeyondTheBudgetIsOutOfMemoryWithNumbersAndChangesNothing) {
  const AddressRange range = device->reserve(2 * kGranules * granule);
  device->commit(part(range, 0, granule));
  const DeviceCounters before = device->counters();
  const AddressRange rest = part(range, granule, kGranules * granule);
  try {
    device->commit(rest);
    ADD_FAILURE() << "committed beyond the budget";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.shortage().asked, kGranules * granule);
    EXPECT_EQ(error.shortage().in_use, granule);
    EXPECT_EQ(error.shortage().budget, kGranules * granule);
    EXPECT_EQ(error.shortage().would_have_fitted, (kGranules - 1) * granule);
  }
  expect_equal(device->counters(), before);
  device->commit(part(range, granule, (kGranules - 1) * granule));
  EXPECT_EQ(device->counters().committed_bytes, kGranules * granule);
}

TEST_P(DeviceConformance, CommitsThatCannotBeAreRefusedAndChangeNothing) {
  const AddressRange range = device->reserve(3 * granule);
  device->commit(part(range, granule, granule));
  const DeviceCounters before = device->counters();
  EXPECT_THROW(device->commit(part(range, granule, granule)), InvalidArgument) << "committed already";
  EXPECT_THROW(device->commit(range), InvalidArgument) << "a part is already committed";
  EXPECT_THROW(device->commit(part(range, 1, granule)), InvalidArgument)
      << "the range does not begin on a granule";
  EXPECT_THROW(device->commit(part(range, 0, granule / 2)), InvalidArgument)
      << "the range is not whole granules";
  EXPECT_THROW(device->commit(part(range, 2 * granule, 2 * granule)), InvalidArgument) << "beyond";
  EXPECT_THROW(device->decommit(part(range, 0, granule)), InvalidArgument) << "not committed";
  EXPECT_THROW(device->decommit(range), InvalidArgument) << "a part is not committed";
  EXPECT_THROW(device->unreserve(range), InvalidArgument) << "partly committed";
  EXPECT_THROW(device->unreserve(part(range, 0, granule)), InvalidArgument)
      << "the range is not a whole reservation";
  expect_equal(device->counters(), before);
  device->decommit(part(range, granule, granule));
  device->unreserve(range);
  EXPECT_THROW(device->commit(part(range, 0, granule)), InvalidArgument) << "the range is no longer reserved";
}

TEST_P(DeviceConformance, CountersCountCommitsAndTheirPeak) {
  const AddressRange range = device->reserve(4 * granule);
  device->commit(part(range, 0, 2 * granule));
  device->commit(part(range, 2 * granule, granule));
  device->decommit(part(range, granule, 2 * granule));  // across the two commits
  device->commit(part(range, 3 * granule, granule));
  expect_equal(
      device->counters(),
      {.commits = 3, .decommits = 1, .committed_bytes = 2 * granule, .peak_committed_bytes = 3 * granule});
}

TEST_P(DeviceConformance, MemoryCanBeCommittedAgainAndUsed) {
  const AddressRange range = committed(1);
  const StreamId stream = device->create_stream("compute");
  const std::vector<std::uint8_t> ones(range.bytes, 1);
  for (int round = 0; round < 3; ++round) {
    write(stream, "write", range, ones);
    device->synchronize_all();
    device->decommit(range);
    device->commit(range);
  }
  EXPECT_EQ(device->counters().peak_committed_bytes, granule);
}

// --- page-locked memory -----------------------------------------------------------------------------------

TEST_P(DeviceConformance, PinnedMemoryComesInExactSizesOnPages) {
  const AddressRange a = device->allocate_pinned(1);
  const AddressRange b = device->allocate_pinned(5000);
  EXPECT_EQ(a.bytes, 1U);
  EXPECT_EQ(b.bytes, 5000U);
  EXPECT_EQ(a.begin % 4096, 0U);
  EXPECT_EQ(b.begin % 4096, 0U);
  EXPECT_FALSE(a.overlaps(b));
  device->free_pinned(b);
  expect_equal(device->counters(),
               {.pinned_allocations = 2, .pinned_frees = 1, .pinned_bytes = 1, .peak_pinned_bytes = 5001});
}

TEST_P(DeviceConformance, PinnedMemoryBeyondItsBudgetIsOutOfMemoryWithNumbers) {
  const AddressRange a = device->allocate_pinned(kHostBudget - 10);
  const DeviceCounters before = device->counters();
  try {
    device->allocate_pinned(11);
    ADD_FAILURE() << "allocated beyond the budget";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.shortage().asked, 11U);
    EXPECT_EQ(error.shortage().in_use, kHostBudget - 10);
    EXPECT_EQ(error.shortage().budget, kHostBudget);
    EXPECT_EQ(error.shortage().would_have_fitted, 10U);
  }
  expect_equal(device->counters(), before);
  device->free_pinned(device->allocate_pinned(10));
  device->free_pinned(a);
  device->free_pinned(device->allocate_pinned(kHostBudget));
}

TEST_P(DeviceConformance, PinnedBlocksThatCannotBeAreRefused) {
  const AddressRange block = device->allocate_pinned(5000);
  const DeviceCounters before = device->counters();
  EXPECT_THROW(device->allocate_pinned(0), InvalidArgument);
  EXPECT_THROW(device->free_pinned(part(block, 0, 4096)), InvalidArgument);
  EXPECT_THROW(device->free_pinned(part(block, 4096, 904)), InvalidArgument);
  expect_equal(device->counters(), before);
  device->free_pinned(block);
  EXPECT_THROW(device->free_pinned(block), InvalidArgument);
}

// --- order ------------------------------------------------------------------------------------------------

TEST_P(DeviceConformance, WorkOnOneStreamRunsInOrder) {
  const StreamId stream = device->create_stream("compute");
  device->set_tracing(true);
  std::vector<std::string> names(50);
  for (std::size_t i = 0; i < names.size(); ++i) {
    names[i] = "work " + std::to_string(i);
  }
  for (const std::string& name : names) {
    work(stream, name);
  }
  const std::vector<TraceEvent> trace = synchronized_work();
  ASSERT_EQ(trace.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(trace[i].name, names[i]);
    EXPECT_EQ(trace[i].stream, stream);
    EXPECT_LE(trace[i].begin_seconds, trace[i].end_seconds);
    EXPECT_TRUE(i == 0 || trace[i - 1].end_seconds <= trace[i].begin_seconds) << names[i];
  }
}

TEST_P(DeviceConformance, AWaitOrdersAcrossStreams) {
  const StreamId a = device->create_stream("a");
  const StreamId b = device->create_stream("b");
  const StreamId c = device->create_stream("c");
  device->set_tracing(true);
  work(a, "first");
  device->wait(b, device->frontier(a));
  work(b, "second");
  device->wait(c, device->frontier(b));
  work(c, "third");
  const std::vector<TraceEvent> trace = synchronized_work();
  EXPECT_LE(named(trace, "first").end_seconds, named(trace, "second").begin_seconds);
  EXPECT_LE(named(trace, "second").end_seconds, named(trace, "third").begin_seconds);
}

TEST_P(DeviceConformance, RandomProgramsKeepTheOrderThatTheirFrontiersSay) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    device = GetParam().make(kGranules * granule, kHostBudget);
    device->set_tracing(true);
    std::mt19937 random(seed);
    std::array<StreamId, 5> streams{};
    for (StreamId& stream : streams) {
      stream = device->create_stream("stream");
    }
    constexpr std::size_t kSteps = 120;
    std::vector<std::string> names(kSteps);
    std::vector<std::pair<Point, Frontier>> steps;
    for (std::size_t i = 0; i < kSteps; ++i) {
      const StreamId stream = streams[random() % streams.size()];
      if (random() % 2 == 0) {
        device->wait(stream, device->frontier(streams[random() % streams.size()]));
      }
      if (!steps.empty() && random() % 4 == 0) {
        device->wait(stream, Frontier(steps[random() % steps.size()].first));
      }
      names[i] = std::to_string(i);
      const Frontier before = device->frontier(stream);
      steps.emplace_back(work(stream, names[i]), before);
    }
    const std::vector<TraceEvent> trace = synchronized_work();
    for (std::size_t later = 0; later < kSteps; ++later) {
      for (std::size_t earlier = 0; earlier < later; ++earlier) {
        if (steps[later].second.dominates(steps[earlier].first)) {
          EXPECT_LE(named(trace, names[earlier]).end_seconds, named(trace, names[later]).begin_seconds)
              << names[earlier] << " before " << names[later];
        }
      }
    }
  }
}

TEST_P(DeviceConformance, ManyStreamsMakeOneChain) {
  std::vector<StreamId> streams;
  for (int i = 0; i < 32; ++i) {
    streams.push_back(device->create_stream("stream " + std::to_string(i)));
    EXPECT_EQ(device->stream_name(streams.back()), "stream " + std::to_string(i));
  }
  EXPECT_EQ(device->stream_count(), streams.size());
  int counter = 0;  // protected only by the waits
  StreamId previous = streams.back();
  for (int round = 0; round < 3; ++round) {
    for (const StreamId stream : streams) {
      device->wait(stream, device->frontier(previous));
      work(stream, "increment", [&counter] { ++counter; });
      previous = stream;
    }
  }
  EXPECT_EQ(device->frontier(previous).points().size(), streams.size());
  device->synchronize(device->frontier(previous));
  EXPECT_TRUE(device->reached(device->frontier(previous)));
  if (const std::string reason = why_not_run(); !reason.empty()) {
    GTEST_SKIP() << "the counter was not checked: " << reason;
  }
  EXPECT_EQ(counter, 3 * 32);
}

TEST_P(DeviceConformance, PointsCountTheSubmissionsOfTheirStream) {
  const StreamId a = device->create_stream("a");
  const StreamId b = device->create_stream("b");
  const AddressRange range = committed(1);
  const AddressRange host = device->allocate_pinned(granule);
  EXPECT_TRUE(device->frontier(a).empty());
  EXPECT_EQ(work(a, "one"), (Point{.stream = a, .count = 1}));
  EXPECT_EQ(write(a, "two", range), (Point{.stream = a, .count = 2}));
  EXPECT_EQ(copy(a, "three", CopyDirection::kDeviceToHost, host, range), (Point{.stream = a, .count = 3}));
  EXPECT_EQ(work(b, "one"), (Point{.stream = b, .count = 1}));
  EXPECT_EQ(device->frontier(a), Frontier(Point{.stream = a, .count = 3}));
  device->synchronize_all();
}

TEST_P(DeviceConformance, AFrontierAfterAWaitDominatesWhatWasWaitedFor) {
  const StreamId a = device->create_stream("a");
  const StreamId b = device->create_stream("b");
  const StreamId c = device->create_stream("c");
  work(a, "a1");
  work(b, "b1");
  device->wait(b, device->frontier(a));
  Frontier both = device->frontier(b);
  both.join(work(a, "a2"));
  device->wait(c, both);
  EXPECT_TRUE(device->frontier(c).dominates(both));
  EXPECT_EQ(device->frontier(c).count(c), 0U) << "a wait is not a submission";
  EXPECT_EQ(device->frontier(c).count(a), 2U);
  EXPECT_FALSE(device->frontier(b).dominates(Point{.stream = a, .count = 2}));
  device->synchronize_all();
}

TEST_P(DeviceConformance, AWaitForWhatWasNotSubmittedIsInvalid) {
  const StreamId a = device->create_stream("a");
  const StreamId b = device->create_stream("b");
  const Point submitted = work(a, "work");
  const Frontier future(Point{.stream = a, .count = submitted.count + 1});
  const Frontier own_future(Point{.stream = b, .count = 1});
  const Frontier nowhere(Point{.stream = 7, .count = 1});
  for (const Frontier& frontier : {future, own_future, nowhere}) {
    EXPECT_THROW(device->wait(b, frontier), InvalidArgument);
    EXPECT_THROW(device->synchronize(frontier), InvalidArgument);
  }
  EXPECT_TRUE(device->frontier(b).empty()) << "a refused wait must leave no trace";
  device->wait(b, Frontier(submitted));
  work(b, "after");
  device->synchronize_all();
}

TEST_P(DeviceConformance, AnUnknownStreamIsInvalid) {
  EXPECT_THROW(work(0, "work"), InvalidArgument);
  EXPECT_THROW(device->wait(0, {}), InvalidArgument);
  EXPECT_THROW(device->frontier(0), InvalidArgument);
  EXPECT_THROW(device->stream_name(0), InvalidArgument);
  EXPECT_THROW(device->times(0), InvalidArgument);
}

TEST_P(DeviceConformance, SynchronizingWithNothingReturns) {
  device->synchronize({});
  device->synchronize_all();
  EXPECT_TRUE(device->reached({}));
  device->create_stream("idle");
  device->synchronize_all();
}

TEST_P(DeviceConformance, WhatWasSynchronizedIsReached) {
  const StreamId a = device->create_stream("a");
  const Point point = work(a, "work");
  device->synchronize(Frontier(point));
  EXPECT_TRUE(device->reached(Frontier(point)));
}

TEST_P(DeviceConformance, DestructionWithWorkInFlightCompletesIt) {
  std::atomic<int> ran = 0;
  {
    const std::unique_ptr<Device> mine = std::exchange(device, GetParam().make(granule, kHostBudget));
    const StreamId a = mine->create_stream("a");
    const StreamId b = mine->create_stream("b");
    const Work work{
        .name = "work", .reads = {}, .writes = {}, .cost = {}, .run = on_device([&ran] { ++ran; })};
    for (int i = 0; i < 20; ++i) {
      mine->submit(a, work);
      mine->wait(b, mine->frontier(a));
      mine->submit(b, work);
      mine->wait(a, mine->frontier(b));
    }
  }
  if (const std::string reason = why_not_run(); !reason.empty()) {
    GTEST_SKIP() << "checked only that the device does not hang: " << reason;
  }
  EXPECT_EQ(ran, 40);
}

TEST_P(DeviceConformance, DevicesAreWorldsOfTheirOwn) {
  const auto other = GetParam().make(kGranules * granule, kHostBudget);
  const StreamId stream = device->create_stream("here");
  work(stream, "work");
  committed(kGranules);
  device->allocate_pinned(kHostBudget);
  EXPECT_EQ(other->stream_count(), 0U);
  expect_equal(other->counters(), {});
  other->commit(other->reserve(kGranules * granule));
  other->allocate_pinned(kHostBudget);
  device->synchronize_all();
}

// --- copies -----------------------------------------------------------------------------------------------

TEST_P(DeviceConformance, SidesOfACopyMustBeOfOneSize) {
  const StreamId stream = device->create_stream("memory");
  const AddressRange range = committed(1);
  const AddressRange host = device->allocate_pinned(granule);
  EXPECT_THROW(copy(stream, "uneven", CopyDirection::kDeviceToHost, host, part(range, 0, granule - 1)),
               InvalidArgument);
  EXPECT_TRUE(device->frontier(stream).empty()) << "a refused copy is not a submission";
}

TEST_P(DeviceConformance, ARoundTripKeepsEveryByte) {
  if (const std::string reason = why_not_run(); !reason.empty()) {
    GTEST_SKIP() << reason;
  }
  const StreamId compute = device->create_stream("compute");
  const StreamId memory = device->create_stream("memory");
  const AddressRange range = committed(2);
  const std::uint64_t bytes = granule - 77;  // an odd size and, below, an odd address
  const AddressRange from = part(range, 3, bytes);
  const AddressRange to = part(range, granule + 5, bytes);
  const AddressRange host = device->allocate_pinned(bytes);
  std::vector<std::uint8_t> pattern(bytes);
  std::mt19937 random(1);
  std::ranges::generate(pattern, [&random] { return static_cast<std::uint8_t>(random()); });
  std::vector<std::uint8_t> contents(range.bytes, 0xee);
  std::ranges::copy(pattern, contents.begin() + 3);
  const std::vector<std::uint8_t> scratch(bytes, 0x11);

  write(compute, "fill", range, contents);
  device->wait(memory, device->frontier(compute));
  copy(memory, "offload", CopyDirection::kDeviceToHost, host, from);
  device->wait(compute, device->frontier(memory));
  write(compute, "scratch", from, scratch);
  copy(memory, "prefetch", CopyDirection::kHostToDevice, to, host);
  device->synchronize_all();

  EXPECT_EQ(std::memcmp(pointer_to<void>(host.begin), pattern.data(), bytes), 0);
  std::vector<std::uint8_t> returned(bytes + 2);
  read(memory, "look", {.begin = to.begin - 1, .bytes = bytes + 2}, returned);
  device->synchronize_all();
  EXPECT_EQ(std::memcmp(returned.data() + 1, pattern.data(), bytes), 0);
  EXPECT_EQ(returned.front(), 0xee) << "the byte before the copy";
  EXPECT_EQ(returned.back(), 0xee) << "the byte after the copy";
}

// --- time and observation ---------------------------------------------------------------------------------

TEST_P(DeviceConformance, TracesNameWorkCopiesAndCountersInStreamOrder) {
  const StreamId compute = device->create_stream("compute");
  const StreamId memory = device->create_stream("memory");
  const AddressRange range = committed(1);
  const AddressRange host = device->allocate_pinned(granule);
  work(compute, "before");
  device->sample_counter(compute, "ignored", 1);
  device->synchronize_all();
  device->set_tracing(true);
  write(compute, "forward conv1", range);
  device->sample_counter(compute, "in use", 42);
  work(compute, "forward conv2");
  device->sample_counter(compute, "in use", 43);
  device->wait(memory, device->frontier(compute));
  copy(memory, "offload x", CopyDirection::kDeviceToHost, host, range);
  device->sample_counter(memory, "in flight", std::numeric_limits<std::uint64_t>::max());
  // Samples are not submissions, so only later work shows that the stream has passed them.
  work(compute, "last");
  work(memory, "last");
  device->synchronize_all();
  device->set_tracing(false);
  work(compute, "after");
  device->synchronize_all();
  const std::vector<TraceEvent> trace = device->take_trace();
  EXPECT_TRUE(device->take_trace().empty());

  const std::vector<TraceEvent> bars = of_kind(trace, TraceEvent::Kind::kWork);
  EXPECT_EQ(bars.size(), 5U);
  EXPECT_EQ(named(bars, "forward conv1").stream, compute);
  EXPECT_EQ(named(bars, "offload x").stream, memory);
  EXPECT_EQ(named(bars, "offload x").value, granule);
  EXPECT_EQ(named(bars, "forward conv1").value, 0U);
  EXPECT_LE(named(bars, "forward conv2").end_seconds, named(bars, "offload x").begin_seconds);

  std::vector<TraceEvent> counters = of_kind(trace, TraceEvent::Kind::kCounter);
  // Across streams a trace is in no particular order.
  std::ranges::stable_sort(counters, {}, &TraceEvent::stream);
  ASSERT_EQ(counters.size(), 3U);
  EXPECT_EQ(counters[0].name, "in use");
  EXPECT_EQ(counters[0].value, 42U);
  EXPECT_EQ(counters[0].begin_seconds, counters[0].end_seconds);
  EXPECT_LE(named(bars, "forward conv1").end_seconds, counters[0].begin_seconds);
  EXPECT_LE(counters[0].begin_seconds, named(bars, "forward conv2").begin_seconds);
  EXPECT_EQ(counters[1].value, 43U);
  EXPECT_EQ(counters[2].name, "in flight");
  EXPECT_EQ(counters[2].stream, memory);
  EXPECT_EQ(counters[2].value, std::numeric_limits<std::uint64_t>::max());
  EXPECT_LE(named(bars, "offload x").end_seconds, counters[2].begin_seconds);
}

TEST_P(DeviceConformance, StreamTimesLieWithinTheClock) {
  const StreamId a = device->create_stream("a");
  const StreamId b = device->create_stream("b");
  device->set_tracing(true);  // some drivers measure only while tracing
  const double begin = device->now_seconds();
  for (int i = 0; i < 10; ++i) {
    work(a, "work");
    device->wait(b, device->frontier(a));
    work(b, "work");
  }
  device->synchronize_all();
  const double elapsed = device->now_seconds() - begin;
  for (const StreamId stream : {a, b}) {
    const StreamTimes times = device->times(stream);
    EXPECT_GT(times.busy_seconds, 0);
    EXPECT_GE(times.waiting_seconds, 0);
    EXPECT_LE(times.busy_seconds + times.waiting_seconds, elapsed * (1 + 1e-9));
  }
}

TEST_P(DeviceConformance, WorkIsTimedOrThereIsAReasonWhyNot) {
  const StreamId stream = device->create_stream("compute");
  const std::string why_not = device->why_not_timed();
  work(stream, "work");
  device->synchronize_all();
  EXPECT_EQ(device->times(stream).busy_seconds > 0, why_not.empty()) << why_not;
  device->set_tracing(true);
  EXPECT_EQ(device->why_not_timed(), "");
}

TEST_P(DeviceConformance, BusyTimeIsWhatTheTraceShows) {
  const StreamId stream = device->create_stream("compute");
  device->set_tracing(true);
  for (int i = 0; i < 10; ++i) {
    work(stream, "work");
  }
  double traced = 0;
  for (const TraceEvent& event : synchronized_work()) {
    traced += event.end_seconds - event.begin_seconds;
  }
  EXPECT_NEAR(device->times(stream).busy_seconds, traced, 1e-9 + traced * 1e-9);
}

// --- protection -------------------------------------------------------------------------------------------

TEST_P(DeviceConformance, ProtectionComesAndGoesInStreamOrder) {
  const StreamId stream = device->create_stream("guard");
  const AddressRange range = committed(1);
  if (const std::string reason = device->why_not_protect(); !reason.empty()) {
    EXPECT_THROW(device->protect(stream, range, Protection::kInaccessible), InvalidArgument)
        << "the device protects despite its reason not to, so this case must not be skipped";
    GTEST_SKIP() << reason;
  }
  const std::vector<std::uint8_t> fill(range.bytes, 1);
  write(stream, "before", range, fill);
  const Point closed = device->protect(stream, range, Protection::kInaccessible);
  EXPECT_EQ(closed, (Point{.stream = stream, .count = 2}));
  device->protect(stream, range, Protection::kAccessible);
  write(stream, "after", range, fill);
  device->protect(stream, range, Protection::kInaccessible);
  device->synchronize_all();
  // Memory that is committed again is accessible.
  device->decommit(range);
  device->commit(range);
  write(stream, "committed anew", range, fill);
  device->synchronize_all();
}

// Copies on two streams send bytes from the host to the device and back several times; the test checks them
// on the host.
TEST_P(DeviceConformance, AGraphDoesAgainWhatWasCaptured) {
  const StreamId out = device->create_stream("out");
  const StreamId in = device->create_stream("in");
  const StreamId through = device->create_stream("through");
  const std::array streams{out, in, through};
  if (const std::string reason = device->why_not_capture(); !reason.empty()) {
    EXPECT_THROW(device->capture(streams, [] {}), InvalidArgument)
        << "the device captures despite its reason not to, so this case must not be skipped";
    GTEST_SKIP() << reason;
  }
  const AddressRange first = committed(1);
  const AddressRange second = committed(1);
  const std::array pinned{device->allocate_pinned(granule), device->allocate_pinned(granule),
                          device->allocate_pinned(granule)};
  const auto step = [&] {
    copy(in, "load", CopyDirection::kHostToDevice, first, pinned[0]);
    device->wait(through, device->frontier(in));
    copy(through, "offload", CopyDirection::kDeviceToHost, pinned[1], first);
    copy(through, "prefetch", CopyDirection::kHostToDevice, second, pinned[1]);
    device->wait(out, device->frontier(through));
    copy(out, "result", CopyDirection::kDeviceToHost, pinned[2], second);
  };
  std::unique_ptr<DeviceGraph> graph;
  const auto submit_step = [&](int number) {
    if (number == 1) {
      graph = device->capture(streams, step);
    } else if (number % 3 == 0) {  // also works between replays
      step();
    } else {
      device->replay(*graph, step);
    }
  };
  for (int number = 0; number < 7; ++number) {
    const std::uint64_t before = device->frontier(through).count(through);
    std::memset(pointer_to<void>(pinned[0].begin), 10 + number, granule);
    std::memset(pointer_to<void>(pinned[2].begin), 0, granule);
    submit_step(number);
    EXPECT_EQ(device->frontier(through).count(through), before + 2) << "step " << number;
    device->synchronize(device->frontier(out));
    EXPECT_TRUE(device->reached(device->frontier(through))) << "step " << number;
    const auto* const bytes = pointer_to<const std::uint8_t>(pinned[2].begin);
    EXPECT_EQ(std::count(bytes, bytes + granule, 10 + number), static_cast<std::ptrdiff_t>(granule))
        << "step " << number;
  }
}

// Other threads may continue meanwhile. Regression: on `cuda`, calls that might wait reached CUDA, which
// invalidated the capture.
TEST_P(DeviceConformance, AThreadThatCapturesIsRefusedWhatMightWaitAndItsCaptureGoesOn) {
  const std::array streams{device->create_stream("memory")};
  const StreamId other = device->create_stream("other");
  if (const std::string reason = device->why_not_capture(); !reason.empty()) {
    GTEST_SKIP() << reason;
  }
  const AddressRange range = committed(1);
  const AddressRange reserved = device->reserve(granule);
  const std::array pinned{device->allocate_pinned(granule), device->allocate_pinned(granule)};
  const Frontier past(work(other, "before"));
  const DeviceCounters before = device->counters();
  const auto step = [&] { copy(streams[0], "load", CopyDirection::kHostToDevice, range, pinned[0]); };
  const auto in_another_thread = [&] {
    device->free_pinned(device->allocate_pinned(granule));
    device->commit(reserved);
    device->synchronize(past);
    EXPECT_TRUE(device->reached(past));
    device->decommit(reserved);
  };
  const std::unique_ptr<DeviceGraph> graph = device->capture(streams, [&] {
    EXPECT_THROW(device->synchronize(past), InvalidArgument);
    EXPECT_THROW(device->reached(past), InvalidArgument);
    EXPECT_THROW(device->recover(), InvalidArgument);
    EXPECT_THROW(device->reserve(1), InvalidArgument);
    EXPECT_THROW(device->unreserve(reserved), InvalidArgument);
    EXPECT_THROW(device->commit(reserved), InvalidArgument);
    EXPECT_THROW(device->decommit(range), InvalidArgument);
    EXPECT_THROW(device->allocate_pinned(1), InvalidArgument);
    EXPECT_THROW(device->free_pinned(pinned[1]), InvalidArgument);
    std::thread(in_another_thread).join();
    step();
  });
  EXPECT_EQ(device->counters().committed_bytes, before.committed_bytes);
  EXPECT_EQ(device->counters().pinned_bytes, before.pinned_bytes);
  std::memset(pointer_to<void>(pinned[0].begin), 7, granule);
  std::memset(pointer_to<void>(pinned[1].begin), 0, granule);
  device->replay(*graph, step);
  copy(streams[0], "result", CopyDirection::kDeviceToHost, pinned[1], range);
  device->synchronize_all();
  const auto* const bytes = pointer_to<const std::uint8_t>(pinned[1].begin);
  EXPECT_EQ(std::count(bytes, bytes + granule, 7), static_cast<std::ptrdiff_t>(granule));
}

TEST_P(DeviceConformance, AfterAGraphItsStreamsAreOrderedAfterAllOfIt) {
  const std::array streams{device->create_stream("a"), device->create_stream("b")};
  const StreamId other = device->create_stream("other");
  if (const std::string reason = device->why_not_capture(); !reason.empty()) {
    GTEST_SKIP() << reason;
  }
  const Point outside = work(other, "outside");
  Point inside;
  const auto step = [&] { inside = work(streams[1], "inside"); };
  const std::unique_ptr<DeviceGraph> graph = device->capture(streams, step);
  for (int replays = 0; replays < 2; ++replays) {
    for (const StreamId stream : streams) {
      EXPECT_TRUE(device->frontier(stream).dominates(inside));
      EXPECT_TRUE(device->frontier(stream).dominates(outside));
      EXPECT_EQ(device->frontier(streams[0]), device->frontier(stream));
    }
    device->wait(other, Frontier(inside));
    EXPECT_FALSE(device->frontier(other).dominates(device->frontier(streams[0])));
    device->replay(*graph, step);
  }
  device->synchronize_all();
}

}  // namespace vdnn
