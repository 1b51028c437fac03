// The communicator of CPU ranks. Ranks are threads on a network that the tests control.

#include "src/dist/host_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <span>
#include <thread>

#include "src/dist/process_group.h"
#include "src/tape/narrow_values.h"
#include "tests/dist/left_fold.h"
#include "tests/extent.h"
#include "tests/fakes/fake_network.h"
#include "vdnn/cpu_device.h"
#include "vdnn/error.h"

namespace vdnn::host_communicator_test {
namespace {

using testing::bits;
using testing::brought;
using ::testing::Each;
using testing::fold;
using ::testing::HasSubstr;
using testing::left_fold;

constexpr std::uint64_t kMemoryBytes = 1 << 20;
constexpr double kWaitSeconds = 30;
const std::string kNothing;

std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return kNothing;
}

// A rank with its own device and communicator, as if in a process of its own.
class Rank {
 public:
  Rank(FakeNetwork& network, int rank, const MpiOptions& options, bool check_accesses = false)
      : group_(make_process_group(network.transport(rank), {})),
        device_(make_cpu_device({.budget_bytes = kMemoryBytes,
                                 .host_budget_bytes = kMemoryBytes,
                                 .delay_seed = static_cast<std::uint64_t>(rank),
                                 .check_accesses = check_accesses})),
        compute_(device_->create_stream("compute")),
        communication_(device_->create_stream("communication")),
        memory_(device_->reserve(kMemoryBytes)) {
    device_->commit(memory_);
    communicator_ = group_->communicator(*device_, options);
  }

  ProcessGroup& group() { return *group_; }
  Device& device() { return *device_; }
  Communicator& communicator() { return *communicator_; }
  void remove_communicator() { communicator_.reset(); }
  StreamId compute() const { return compute_; }
  StreamId communication() const { return communication_; }
  AddressRange floats(std::size_t first, std::size_t count) const {
    return {.begin = memory_.begin + first * sizeof(float), .bytes = count * sizeof(float)};
  }
  std::span<float> at(AddressRange range) const {
    return {pointer_to<float>(range.begin), range.bytes / sizeof(float)};
  }

  Point submit(StreamId stream, const std::function<void()>& work) {
    return device_->submit(
        stream, {.name = "work", .reads = {}, .writes = {}, .cost = {}, .run = [work](void*) { work(); }});
  }
  // Fills the range on the compute stream, runs `collective` on the communication stream, and copies the
  // result on the compute stream.
  template <class Submit>
  std::shared_ptr<const std::vector<float>> round(std::uint64_t seed, AddressRange range,
                                                  const Submit& collective) {
    submit(compute_, [this, range, seed, rank = group_->rank()] {
      std::ranges::copy(brought(seed, rank, at(range).size()), at(range).begin());
    });
    device_->wait(communication_, device_->frontier(compute_));
    device_->wait(compute_, Frontier(collective(Collective{.name = "reduce conv1", .range = range})));
    auto seen = std::make_shared<std::vector<float>>();
    submit(compute_, [this, range, seen] { seen->assign(at(range).begin(), at(range).end()); });
    return seen;
  }
  std::shared_ptr<const std::vector<float>> all_reduce(std::uint64_t seed, AddressRange range) {
    return round(seed, range, [&](const Collective& collective) {
      return communicator_->all_reduce(communication_, collective);
    });
  }
  void wait() { communicator_->wait(device_->frontier(compute_)); }

 private:
  std::unique_ptr<ProcessGroup> group_;
  std::unique_ptr<Device> device_;
  StreamId compute_ = 0;
  StreamId communication_ = 0;
  AddressRange memory_;
  std::unique_ptr<Communicator> communicator_;
};

// The staging memory is so small that a collective consists of many pieces.
MpiOptions small_staging(int ranks) {
  return {.wait_seconds = kWaitSeconds, .staging_bytes = 1024 * static_cast<std::uint64_t>(ranks)};
}

class Ranks {
 public:
  explicit Ranks(const FakeNetworkOptions& options) : size_(options.ranks), network_(options) {}

  FakeNetwork& network() { return network_; }
  // Runs work(rank) on every rank; returns what each threw.
  std::vector<std::string> run(const std::function<void(Rank&)>& work) {
    return run(small_staging(size_), work);
  }
  std::vector<std::string> run(const MpiOptions& options, const std::function<void(Rank&)>& work) {
    return network_.run([&](int number) {
      Rank rank(network_, number, options);
      work(rank);
    });
  }

 private:
  const int size_;
  FakeNetwork network_;
};

constexpr auto kCounts = std::to_array<std::size_t>({0, 1, 2, 3, 5, 255, 4096, 16'383});

// --- what collectives do -----------------------------------------------------------------------------------

class HostCollectivesOf : public ::testing::TestWithParam<int> {};

TEST_P(HostCollectivesOf, SumIsALeftFoldInRankOrderToTheBit) {
  for (std::uint64_t seed = 0; seed < testing::extent({.usual = 4, .under_sanitizers = 2, .in_long_run = 50});
       ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Ranks ranks({.seed = seed, .ranks = GetParam()});
    const auto said = ranks.run([&](Rank& rank) {
      std::vector<std::shared_ptr<const std::vector<float>>> seen;
      seen.reserve(kCounts.size());
      for (const std::size_t count : kCounts) {
        seen.push_back(rank.all_reduce(seed, rank.floats(1, count)));
      }
      rank.wait();
      for (std::size_t i = 0; i < seen.size(); ++i) {
        EXPECT_EQ(bits(*seen[i]), bits(left_fold(seed, GetParam(), kCounts[i]))) << kCounts[i];
      }
    });
    EXPECT_THAT(said, Each(kNothing));
  }
}

// If other orders gave the same bits, the test above could not show that the sum is in rank order.
TEST(HostCommunicator, AnotherOrderGivesOtherBits) {
  for (const auto& order : std::vector<std::vector<int>>{{1, 2, 0}, {2, 1, 0}, {0, 2, 1}}) {
    EXPECT_NE(bits(fold(0, order, 4096)), bits(left_fold(0, 3, 4096)));
  }
}

// Each rank's values are rounded to the narrow type, then folded from the left. Partial sums stay fp32.
TEST_P(HostCollectivesOf, NarrowElementsAreWidenedFoldedAndRoundedOnce) {
  constexpr std::uint64_t kSeed = 9;
  for (const DataType type : {DataType::kBf16, DataType::kF16}) {
    const auto stored = [type](std::vector<float> numbers) {
      narrow_in_place(type, reinterpret_cast<std::byte*>(numbers.data()), numbers.size());
      const auto bytes = std::as_bytes(std::span(numbers)).first(numbers.size() * size_of(type));
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    };
    Ranks ranks({.seed = kSeed, .ranks = GetParam()});
    EXPECT_THAT(ranks.run([&](Rank& rank) {
      for (const std::size_t count : kCounts) {
        const auto mine = stored(brought(kSeed, rank.group().rank(), count));
        const AddressRange range{.begin = rank.floats(1, 0).begin, .bytes = mine.size()};
        auto* const memory = pointer_to<std::byte>(range.begin);
        std::ranges::copy(mine, memory);
        rank.communicator().wait(Frontier(rank.communicator().all_reduce(
            rank.communication(), {.name = "narrow", .range = range, .type = type})));
        std::vector<float> sum = widened(type, stored(brought(kSeed, 0, count)));
        for (int other = 1; other < GetParam(); ++other) {
          const std::vector<float> theirs = widened(type, stored(brought(kSeed, other, count)));
          std::ranges::transform(sum, theirs, sum.begin(), std::plus<>());
        }
        EXPECT_EQ(std::vector(memory, memory + mine.size()), stored(sum)) << to_string(type) << ", " << count;
      }
    }),
                Each(kNothing));
  }
}

TEST_P(HostCollectivesOf, BroadcastIsFromEveryRankToAll) {
  Ranks ranks({.seed = 2, .ranks = GetParam()});
  EXPECT_THAT(ranks.run([&](Rank& rank) {
    for (int root = 0; root < GetParam(); ++root) {
      for (const std::size_t count : kCounts) {
        const auto seen = rank.round(2, rank.floats(3, count), [&](const Collective& collective) {
          return rank.communicator().broadcast(rank.communication(), collective, root);
        });
        rank.wait();
        EXPECT_EQ(bits(*seen), bits(brought(2, root, count))) << "from rank " << root;
      }
    }
  }),
              Each(kNothing));
}

// All buckets of a step are in flight at once, while the compute stream fills further ones.
TEST_P(HostCollectivesOf, RunInFlightBesideComputeOnAnotherStream) {
  constexpr std::size_t kBuckets = 20;
  constexpr std::size_t kCount = 700;
  Ranks ranks({.seed = 3, .ranks = GetParam()});
  EXPECT_THAT(ranks.run([&](Rank& rank) {
    std::vector<std::shared_ptr<const std::vector<float>>> seen;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      seen.push_back(rank.all_reduce(i, rank.floats(i * kCount, kCount)));
    }
    rank.wait();
    for (std::size_t i = 0; i < kBuckets; ++i) {
      EXPECT_EQ(bits(*seen[i]), bits(left_fold(i, GetParam(), kCount))) << "bucket " << i;
    }
  }),
              Each(kNothing));
}

// A bucket of large and small parameters. Each parameter gets the same bits as in a reduction of its own,
// although a message contains parts of several parameters.
TEST_P(HostCollectivesOf, ReduceABucketOfSeveralRangesAsOne) {
  Ranks ranks({.seed = 8, .ranks = GetParam()});
  EXPECT_THAT(ranks.run([&](Rank& rank) {
    std::vector<Collective> parts;
    std::size_t first = 1;
    for (const std::size_t count : kCounts) {
      const AddressRange range = rank.floats(first, count);
      std::ranges::copy(brought(count, rank.group().rank(), count), rank.at(range).begin());
      parts.push_back({.name = "bucket", .range = range});
      first += count + 3;  // leaves gaps between ranges
    }
    const Point point = rank.communicator().all_reduce(rank.communication(), parts);
    EXPECT_EQ(point.count, 1U) << "one submission";
    rank.communicator().wait(Frontier(point));
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::span<const float> sums = rank.at(parts[i].range);
      EXPECT_EQ(bits(sums), bits(left_fold(kCounts[i], GetParam(), kCounts[i]))) << kCounts[i];
    }
  }),
              Each(kNothing));
}

TEST_P(HostCollectivesOf, TwoCommunicatorsDoNotHearEachOther) {
  constexpr std::size_t kCount = 500;
  Ranks ranks({.seed = 4, .ranks = GetParam()});
  EXPECT_THAT(ranks.run([&](Rank& rank) {
    const auto other = rank.group().communicator(rank.device(), small_staging(GetParam()));
    const StreamId stream = rank.device().create_stream("other");
    const AddressRange mine = rank.floats(kCount, kCount);
    for (int step = 0; step < 5; ++step) {
      std::ranges::copy(brought(7, rank.group().rank(), kCount), rank.at(mine).begin());
      const auto seen = rank.all_reduce(6, rank.floats(0, kCount));
      const Point point = other->all_reduce(stream, {.name = "other", .range = mine});
      rank.group().barrier();
      other->wait(Frontier(point));
      rank.wait();
      const std::span<const float> sums = rank.at(mine);
      EXPECT_EQ(bits(*seen), bits(left_fold(6, GetParam(), kCount)));
      EXPECT_EQ(bits(sums), bits(left_fold(7, GetParam(), kCount)));
    }
  }),
              Each(kNothing));
}

INSTANTIATE_TEST_SUITE_P(Ranks, HostCollectivesOf, ::testing::Values(1, 2, 3, 4),
                         ::testing::PrintToStringParamName());

// Regression: each rank ran the collective whose stream reached it first, and waited for the other rank.
TEST(HostCommunicator, CollectivesOfTwoStreamsRunInTheOrderOfTheirSubmission) {
  constexpr std::size_t kCount = 100;
  Ranks ranks({.seed = 5, .ranks = 2});
  EXPECT_THAT(ranks.run([&](Rank& rank) {
    const StreamId other = rank.device().create_stream("other");
    const AddressRange ranges[] = {rank.floats(0, kCount), rank.floats(kCount, kCount)};
    for (std::uint64_t i = 0; i < 2; ++i) {
      std::ranges::copy(brought(i, rank.group().rank(), kCount), rank.at(ranges[i]).begin());
    }
    // On rank 0, the stream of the first collective is late.
    std::promise<void> go;
    if (rank.group().rank() == 0) {
      rank.submit(rank.communication(), [wait = go.get_future().share()] { wait.wait(); });
    }
    rank.communicator().all_reduce(rank.communication(), {.name = "first", .range = ranges[0]});
    const Point second = rank.communicator().all_reduce(other, {.name = "second", .range = ranges[1]});
    if (rank.group().rank() == 0) {
      ranks.network().until_they_wait({1});
    }
    go.set_value();
    rank.communicator().wait(Frontier(second));
    for (std::uint64_t i = 0; i < 2; ++i) {
      const std::span<const float> sums = rank.at(ranges[i]);
      EXPECT_EQ(bits(sums), bits(left_fold(i, 2, kCount)));
    }
  }),
              Each(kNothing));
}

// The device ends the process on an undeclared access.
TEST(HostCommunicator, CollectivesTouchWhatTheyDeclare) {
  constexpr std::size_t kCount = 3000;
  FakeNetwork network({.seed = 6, .ranks = 3});
  EXPECT_THAT(network.run([&](int number) {
    Rank rank(network, number, small_staging(3), /*check_accesses=*/true);
    const AddressRange range = rank.floats(5, kCount);
    std::ranges::copy(testing::brought(6, number, kCount), rank.at(range).begin());
    const Collective collective{.name = "sum", .range = range};
    rank.communicator().all_reduce(rank.communication(), collective);
    rank.communicator().wait(Frontier(rank.communicator().broadcast(rank.communication(), collective, 2)));
  }),
              Each(kNothing));
}

TEST(HostCommunicator, StagingIsTakenOnceAndCounted) {
  for (const std::uint64_t staging : {4096ULL, 1ULL << 20}) {
    Ranks ranks({.ranks = 3});
    EXPECT_THAT(ranks.run({.staging_bytes = staging},
                          [&](Rank& rank) {
                            const std::uint64_t taken = rank.communicator().library_bytes();
                            EXPECT_LE(taken, staging);
                            EXPECT_GT(taken, staging / 2);
                            rank.all_reduce(0, rank.floats(0, 100'000));
                            rank.wait();
                            EXPECT_EQ(rank.communicator().library_bytes(), taken);
                          }),
                Each(kNothing));
  }
  Ranks alone({.ranks = 1});
  EXPECT_THAT(alone.run([](Rank& rank) { EXPECT_EQ(rank.communicator().library_bytes(), 0U); }),
              Each(kNothing));
}

TEST(HostCommunicator, RefusesWhatCannotBeAndGoesOn) {
  Ranks ranks({.ranks = 2});
  EXPECT_THAT(ranks.run([](Rank& rank) {
    Communicator& communicator = rank.communicator();
    const Collective odd{.name = "odd", .range = {.begin = rank.floats(0, 1).begin, .bytes = 6}};
    EXPECT_THROW(communicator.all_reduce(rank.communication(), odd), InvalidArgument);
    EXPECT_THROW(communicator.all_reduce(rank.communication(), std::span<const Collective>()),
                 InvalidArgument);
    EXPECT_THROW(communicator.broadcast(rank.communication(), odd, 0), InvalidArgument);
    for (const DataType type : {DataType::kI32, DataType::kU8}) {
      const Collective other{.name = "other", .range = rank.floats(0, 1), .type = type};
      EXPECT_THROW(communicator.all_reduce(rank.communication(), other), InvalidArgument);
    }
    const std::array mixed{Collective{.name = "mixed", .range = rank.floats(0, 1)},
                           Collective{.name = "mixed", .range = rank.floats(1, 1), .type = DataType::kBf16}};
    EXPECT_THROW(communicator.all_reduce(rank.communication(), mixed), InvalidArgument);
    const Collective sound{.name = "sound", .range = rank.floats(0, 1)};
    EXPECT_THROW(communicator.broadcast(rank.communication(), sound, 2), InvalidArgument);
    EXPECT_THROW(communicator.broadcast(rank.communication(), sound, -1), InvalidArgument);
    // The point is of work that was never submitted, so no wait for it could end.
    EXPECT_THROW(communicator.wait(Frontier({.stream = 0, .count = 1})), InvalidArgument);
    const auto seen = rank.all_reduce(0, rank.floats(0, 3));
    rank.wait();
    EXPECT_EQ(bits(*seen), bits(left_fold(0, 2, 3)));
  }),
              Each(kNothing));
}

TEST(HostCommunicator, RefusesOptionsThatCannotBeAndNamesThem) {
  const auto refusal = [](const MpiOptions& options) {
    Ranks ranks({.ranks = 2});
    return ranks.run(options, [](Rank&) {});
  };
  EXPECT_THAT(refusal({.wait_seconds = 0}), Each(HasSubstr("wait_seconds is 0 s")));
  EXPECT_THAT(refusal({.staging_bytes = 2047}),
              Each(HasSubstr("staging_bytes is 1.999 KiB (2047 bytes) for 2 ranks")));
}

// --- failing -----------------------------------------------------------------------------------------------

// The errors that all later calls throw.
std::vector<std::string> said_by_every_call(Rank& rank) {
  Communicator& communicator = rank.communicator();
  const Collective collective{.name = "later", .range = rank.floats(0, 4)};
  communicator.break_off("another cause");
  return {thrown_by([&] { communicator.all_reduce(rank.communication(), collective); }),
          thrown_by([&] { communicator.broadcast(rank.communication(), collective, 0); }),
          thrown_by([&] { communicator.wait({}); })};
}

// Polls until the communicator throws the cause.
void hear(Rank& rank) {
  while (true) {
    rank.communicator().wait({});
    std::this_thread::yield();
  }
}

TEST(HostCommunicatorFailures, ARankThatHangsIsNamedByTheOthersInTime) {
  Ranks ranks({.seed = 1, .ranks = 3});
  const std::vector<std::string> said = ranks.run([&](Rank& rank) {
    const auto seen = rank.all_reduce(0, rank.floats(0, 5));
    rank.wait();
    EXPECT_EQ(seen->size(), 5U);
    if (rank.group().rank() == 1) {
      ranks.network().until_they_wait({0, 2});
      ranks.network().let_pass(kWaitSeconds);
      hear(rank);
    }
    rank.all_reduce(1, rank.floats(0, 700));
    const std::string first = thrown_by([&] { rank.wait(); });
    EXPECT_THAT(said_by_every_call(rank), Each(first));
    throw DeviceError(first);
  });
  EXPECT_THAT(said, Each(HasSubstr("all-reduce 'reduce conv1' of 2.734 KiB (2800 bytes): heard nothing from "
                                   "rank 1 (on host1) for 30 s")));
  EXPECT_THAT(said[1], HasSubstr("has given up"));
}

// A host that waits for the device instead of the communicator must not hang, either.
TEST(HostCommunicatorFailures, SynchronizeEndsInTimeToo) {
  Ranks ranks({.seed = 1, .ranks = 2});
  std::atomic<bool> ended = false;
  const std::vector<std::string> said = ranks.run([&](Rank& rank) {
    if (rank.group().rank() == 1) {
      ranks.network().until_they_wait({0});
      ranks.network().let_pass(kWaitSeconds);
      ended.wait(false);
      hear(rank);
    }
    rank.all_reduce(1, rank.floats(0, 700));
    const std::string cause = thrown_by([&] { rank.device().synchronize_all(); });
    ended = true;
    ended.notify_all();
    throw DeviceError(cause);
  });
  EXPECT_THAT(said[0], HasSubstr("heard nothing from rank 1 (on host1) for 30 s"));
}

// A rank that is late with its own work does not time out, because its time limit runs only from the
// beginning of its collective.
TEST(HostCommunicatorFailures, TimeBeforeACollectiveHasBegunHereDoesNotCount) {
  Ranks ranks({.seed = 1, .ranks = 1});
  EXPECT_THAT(ranks.run([&](Rank& rank) {
    rank.submit(rank.compute(), [&] { ranks.network().let_pass(10 * kWaitSeconds); });
    const auto seen = rank.all_reduce(1, rank.floats(0, 7));
    rank.wait();
    EXPECT_EQ(seen->size(), 7U);
  }),
              Each(kNothing));
}

TEST(HostCommunicatorFailures, WhoBreaksOffEndsItOnAllAtOnce) {
  Ranks ranks({.seed = 2, .ranks = 3});
  const std::vector<std::string> said = ranks.run([&](Rank& rank) {
    if (rank.group().rank() == 0) {
      ranks.network().until_they_wait({1, 2});
      rank.communicator().break_off("out of memory");
      EXPECT_THAT(said_by_every_call(rank), Each("cpu: rank 0 of 3: out of memory"));
      return;
    }
    rank.all_reduce(0, rank.floats(0, 1000));
    rank.wait();
  });
  EXPECT_EQ(said[0], kNothing);
  for (const std::size_t rank : {1, 2}) {
    EXPECT_EQ(said[rank], "cpu: rank " + std::to_string(rank) +
                              " of 3: rank 0 (on host0) has given up: cpu: rank 0 of 3: out of memory");
  }
  EXPECT_EQ(ranks.network().now_seconds(), 0);
}

TEST(HostCommunicatorFailures, WorkThatFailsOnOneDeviceEndsItOnAll) {
  Ranks ranks({.seed = 3, .ranks = 3});
  const std::vector<std::string> said = ranks.run([&](Rank& rank) {
    if (rank.group().rank() == 0) {
      rank.submit(rank.compute(), [] { throw DataError("a kernel is missing"); });
      EXPECT_EQ(thrown_by([&] { rank.wait(); }), "a kernel is missing");
      EXPECT_THAT(said_by_every_call(rank), Each("a kernel is missing"));
      return;
    }
    rank.all_reduce(0, rank.floats(0, 1000));
    rank.wait();
  });
  EXPECT_THAT(said[1], HasSubstr("rank 0 (on host0) has given up: a kernel is missing"));
  EXPECT_THAT(said[2], HasSubstr("rank 0 (on host0) has given up: a kernel is missing"));
}

TEST(HostCommunicatorFailures, ACommunicatorThatAnExceptionTakesAwayTellsTheOthers) {
  Ranks ranks({.seed = 4, .ranks = 3});
  const std::vector<std::string> said = ranks.run([](Rank& rank) {
    if (rank.group().rank() == 2) {
      throw DataError("the data set ended");
    }
    rank.all_reduce(0, rank.floats(0, 100));
    rank.wait();
  });
  EXPECT_EQ(said[2], "the data set ended");
  EXPECT_THAT(said[0], HasSubstr("rank 2 (on host2) has given up"));
  EXPECT_THAT(said[1], HasSubstr("rank 2 (on host2) has given up"));
}

// A failed stream skips its work. The next collective must not be mistaken for the skipped one.
TEST(HostCommunicatorFailures, ACollectiveThatDidNotRunEndsTheOnesBehindIt) {
  Ranks ranks({.seed = 5, .ranks = 2});
  const std::vector<std::string> said = ranks.run([](Rank& rank) {
    const StreamId other = rank.device().create_stream("other");
    const auto reduce = [&](StreamId stream) {
      return rank.communicator().all_reduce(stream, {.name = "sum", .range = rank.floats(0, 10)});
    };
    std::promise<void> go;
    if (rank.group().rank() == 0) {
      rank.submit(rank.communication(), [wait = go.get_future().share()] {
        wait.wait();
        throw DataError("broken");
      });
    }
    reduce(rank.communication());
    const Point last = reduce(other);
    go.set_value();
    rank.communicator().wait(Frontier(last));
  });
  EXPECT_THAT(said, Each(HasSubstr("a collective before it did not run")));
}

TEST(HostCommunicatorFailures, RanksInDifferentCollectivesAreTold) {
  Ranks ranks({.seed = 6, .ranks = 2});
  const std::vector<std::string> said = ranks.run([](Rank& rank) {
    rank.all_reduce(0, rank.floats(0, rank.group().rank() == 0 ? 10 : 20));
    rank.wait();
  });
  EXPECT_THAT(said, Each(HasSubstr("bytes where")));
}

TEST(HostCommunicatorFailures, WorkThatIsStillQueuedOutlivesItsCommunicator) {
  Ranks ranks({.seed = 7, .ranks = 2});
  const std::vector<std::string> said = ranks.run([](Rank& rank) {
    std::promise<void> go;
    rank.submit(rank.communication(), [wait = go.get_future().share()] { wait.wait(); });
    const Point point =
        rank.communicator().all_reduce(rank.communication(), {.name = "sum", .range = rank.floats(0, 10)});
    rank.communicator().break_off("enough");
    rank.remove_communicator();
    go.set_value();
    rank.device().synchronize(Frontier(point));
  });
  EXPECT_THAT(said, Each(::testing::AnyOf(HasSubstr(" of 2: enough"), HasSubstr("has given up"))));
}

TEST(HostCommunicatorFailures, WaitsOfSeveralThreadsAllSayTheFirstCause) {
  Ranks ranks({.ranks = 1});
  EXPECT_THAT(ranks.run([](Rank& rank) {
    std::atomic<int> said = 0;
    std::array<std::thread, 3> threads;
    for (std::thread& thread : threads) {
      thread = std::thread([&] {
        thrown_by([&] { hear(rank); });
        said += static_cast<int>(thrown_by([&] { rank.wait(); }) == "cpu: rank 0 of 1: enough");
      });
    }
    for (int step = 0; step < 20; ++step) {
      rank.all_reduce(0, rank.floats(0, 10));
    }
    rank.communicator().break_off("enough");
    std::ranges::for_each(threads, [](std::thread& thread) { thread.join(); });
    EXPECT_EQ(said, 3);
  }),
              Each(kNothing));
}

}  // namespace
}  // namespace vdnn::host_communicator_test
