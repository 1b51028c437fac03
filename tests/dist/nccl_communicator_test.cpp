#include "src/dist/cuda/nccl_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "src/tape/narrow_values.h"
#include "streams/cuda/cuda_device.h"
#include "tests/extent.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/fakes/fake_nccl.h"
#include "vdnn/error.h"
#include "vdnn/nccl_communicator.h"

namespace vdnn::nccl_communicator_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kGranule = 64 << 10;
constexpr double kStartSeconds = 60;
constexpr double kWaitSeconds = 30;
const std::string kNothing = "nothing";

std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return kNothing;
}

// Passes the id from rank 0 to the other ranks of a test, as MPI's broadcast would. Unlike with MPI, no rank
// waits forever if rank 0 has failed.
class Board {
 public:
  explicit Board(FakeNccl& nccl) : nccl_(nccl) {}

  void exchange(int rank, NcclId& id) {
    constexpr double kPatienceSeconds = 100;
    if (rank == 0) {
      const std::lock_guard lock(mutex_);
      id_ = id;
    }
    for (double waited = 0; waited < kPatienceSeconds && !posted(id); ++waited) {
      nccl_.let_pass(1);
    }
  }

 private:
  bool posted(NcclId& id) {
    const std::lock_guard lock(mutex_);
    id = id_.value_or(NcclId{});
    return id_.has_value();
  }

  FakeNccl& nccl_;
  std::mutex mutex_;
  std::optional<NcclId> id_;
};

// A rank as if in a process of its own. Its GPU is not the first that the process sees.
class Rank {
 public:
  static constexpr int kOrdinal = 1;

  Rank(FakeNccl& nccl, Board& board, int rank, int size, const std::shared_ptr<FakeCuda>& cuda)
      : rank_(rank),
        size_(size),
        device_(make_cuda_device(
            {.ordinal = kOrdinal, .budget_bytes = kGranule, .host_budget_bytes = kGranule}, cuda)),
        compute_(device_->create_stream("compute")),
        communication_(device_->create_stream("communication")),
        memory_(device_->reserve(kGranule)) {
    device_->commit(memory_);
    communicator_ = make_nccl_communicator(
        *device_,
        {.rank = rank,
         .size = size,
         .ordinal = kOrdinal,
         .exchange_id = [&board, rank](NcclId& id) { board.exchange(rank, id); },
         .start_seconds = kStartSeconds,
         .wait_seconds = kWaitSeconds,
         .bucket_bytes = kGranule,
         .bucket_type = DataType::kBf16},
        [&nccl, rank, cuda] { return nccl.api(rank, cuda); }, cuda);
  }

  Device& device() { return *device_; }
  Communicator& communicator() { return *communicator_; }
  StreamId communication() const { return communication_; }
  // The free memory of the rank's GPU.
  static std::uint64_t free_bytes(FakeCuda& cuda) {
    std::uint64_t free = 0;
    std::uint64_t total = 0;
    cuda.set_device(kOrdinal);
    EXPECT_EQ(cuda.memory_info(free, total), CudaStatus::kSuccess);
    return free;
  }
  AddressRange floats(std::uint64_t count) const {
    return {.begin = memory_.begin, .bytes = count * sizeof(float)};
  }

  // The values of one rank, and the sum over all ranks: both are exact in every type.
  static float brought(int rank, std::uint64_t i) {
    return static_cast<float>((i * 31 + static_cast<std::uint64_t>(rank) * 7) % 61);
  }
  float sum(std::uint64_t i) const {
    float sum = 0;
    for (int rank = 0; rank < size_; ++rank) {
      sum += brought(rank, i);
    }
    return sum;
  }

  // Fills the range on the compute stream, runs `collective` on the communication stream, and copies the
  // result on the compute stream.
  template <class Submit>
  std::shared_ptr<const std::vector<float>> round(std::uint64_t count, DataType type,
                                                  const Submit& collective) {
    const AddressRange range{.begin = memory_.begin, .bytes = count * size_of(type)};
    const Access access{.range = range};
    const std::span<const Access> accesses(&access, range.bytes == 0 ? 0 : 1);
    submit({.name = "fill", .reads = {}, .writes = accesses}, [range, count, type, rank = rank_] {
      std::vector<float> values(count);
      for (std::uint64_t i = 0; i < count; ++i) {
        values[i] = brought(rank, i);
      }
      auto* const memory = reinterpret_cast<std::byte*>(values.data());
      if (is_narrow(type)) {
        narrow_in_place(type, memory, count);
      }
      std::copy_n(memory, range.bytes, pointer_to<std::byte>(range.begin));
    });
    device_->wait(communication_, device_->frontier(compute_));
    const Point reduced = collective(Collective{.name = "reduce conv1", .range = range, .type = type});
    device_->wait(compute_, Frontier(reduced));
    auto seen = std::make_shared<std::vector<float>>();  // shared, since work may outlive a run that fails
    submit({.name = "look", .reads = accesses, .writes = {}}, [range, type, seen] {
      *seen = widened(type, std::span(pointer_to<const std::byte>(range.begin), range.bytes));
    });
    return seen;
  }
  std::shared_ptr<const std::vector<float>> all_reduce(std::uint64_t count, DataType type = DataType::kF32) {
    return round(count, type, [&](const Collective& collective) {
      return communicator_->all_reduce(communication_, halves_of(collective));
    });
  }
  std::shared_ptr<const std::vector<float>> broadcast(std::uint64_t count, int root) {
    return round(count, DataType::kF32, [&](const Collective& collective) {
      return communicator_->broadcast(communication_, collective, root);
    });
  }
  void wait() { communicator_->wait(device_->frontier(compute_)); }
  void capture(const std::function<void()>& submit_all) {
    const std::array streams{compute_, communication_};
    device_->capture(streams, submit_all);
  }

 private:
  // Splits the range into a bucket of two parameters.
  static std::array<Collective, 2> halves_of(const Collective& collective) {
    std::array halves{collective, collective};
    const std::uint64_t element = size_of(collective.type);
    halves[0].range.bytes = collective.range.bytes / element / 2 * element;
    halves[1].range.begin += halves[0].range.bytes;
    halves[1].range.bytes -= halves[0].range.bytes;
    return halves;
  }

  void submit(const FakeAccesses& accesses, const std::function<void()>& kernel) {
    device_->submit(compute_, {.name = accesses.name,
                               .reads = accesses.reads,
                               .writes = accesses.writes,
                               .cost = {},
                               .run = [&](void* native) {
                                 if (FakeCuda::launch(native, kernel, accesses) != CudaStatus::kSuccess) {
                                   throw DeviceError("a launch failed");
                                 }
                               }});
  }

  const int rank_;
  const int size_;
  std::unique_ptr<Device> device_;
  StreamId compute_ = 0;
  StreamId communication_ = 0;
  AddressRange memory_;
  std::unique_ptr<Communicator> communicator_;
};

// Several ranks, each with a fake GPU. Misuse or a leak on any of them fails the test.
class Ranks {
 public:
  explicit Ranks(const FakeNcclOptions& options) : options_(options), nccl_(options), board_(nccl_) {
    for (int rank = 0; rank < options.ranks; ++rank) {
      cudas_.push_back(
          std::make_shared<FakeCuda>(FakeCudaOptions{.seed = options.seed + static_cast<std::uint64_t>(rank),
                                                     .gpus = Rank::kOrdinal + 1,
                                                     .granule_bytes = kGranule,
                                                     .while_host_waits = [this] { return others_go_on(); }}));
    }
  }
  ~Ranks() {
    EXPECT_THAT(nccl_.misuses(), IsEmpty());
    EXPECT_THAT(nccl_.leaks(), IsEmpty());
    for (const auto& cuda : cudas_) {
      EXPECT_THAT(cuda->misuses(), IsEmpty());
      EXPECT_THAT(cuda->leaks(), IsEmpty());
      for (const auto& finding : cuda->findings()) {
        ADD_FAILURE() << finding.text;
      }
    }
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  FakeNccl& nccl() { return nccl_; }
  FakeCuda& cuda(int rank) { return *cudas_[static_cast<std::size_t>(rank)]; }
  std::unique_ptr<Rank> make(int rank) {
    return std::make_unique<Rank>(nccl_, board_, rank, options_.ranks,
                                  cudas_[static_cast<std::size_t>(rank)]);
  }

  // Runs work(rank number) on every rank; returns what each threw.
  std::vector<std::string> run(const std::function<void(int)>& work) {
    std::vector<std::string> said(cudas_.size());
    nccl_.run([&](int rank) { said[static_cast<std::size_t>(rank)] = thrown_by([&] { work(rank); }); });
    return said;
  }
  // Like run(), but passes a started Rank to `work`.
  std::vector<std::string> run_started(const std::function<void(Rank&)>& work) {
    return run([&](int rank) { work(*make(rank)); });
  }

 private:
  // Lets time pass while a host waits on a GPU. Returns false once the wait would last forever.
  bool others_go_on() {
    constexpr double kForEver = 1000;
    nccl_.let_pass(1);
    return nccl_.now_seconds() < kForEver;
  }

  const FakeNcclOptions options_;
  FakeNccl nccl_;
  Board board_;
  std::vector<std::shared_ptr<FakeCuda>> cudas_;
};

constexpr auto kCounts = std::to_array<std::uint64_t>({0, 1, 2, 3, 255, 4096, 16'383});

void expect_sums(const Rank& rank, const std::vector<float>& seen) {
  for (std::uint64_t i = 0; i < seen.size(); ++i) {
    ASSERT_EQ(seen[i], rank.sum(i)) << "float " << i << " of " << seen.size();
  }
}

// --- what collectives do -----------------------------------------------------------------------------------

class Collectives : public ::testing::TestWithParam<int> {};

TEST_P(Collectives, SumInPlaceInOrderWithOtherStreams) {
  for (std::uint64_t seed = 0; seed < testing::extent({.usual = 6, .in_long_run = 200}); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Ranks ranks({.seed = seed, .ranks = GetParam()});
    EXPECT_THAT(ranks.run_started([](Rank& rank) {
      std::vector<std::shared_ptr<const std::vector<float>>> seen;
      seen.reserve(kCounts.size());
      for (const std::uint64_t count : kCounts) {
        seen.push_back(rank.all_reduce(count));
      }
      rank.wait();
      for (std::size_t i = 0; i < seen.size(); ++i) {
        ASSERT_EQ(seen[i]->size(), kCounts[i]);
        expect_sums(rank, *seen[i]);
      }
    }),
                Each(kNothing));
  }
}

TEST_P(Collectives, SumNarrowElements) {
  for (const DataType type : {DataType::kBf16, DataType::kF16}) {
    Ranks ranks({.seed = 4, .ranks = GetParam()});
    EXPECT_THAT(ranks.run_started([type](Rank& rank) {
      for (const std::uint64_t count : kCounts) {
        const auto seen = rank.all_reduce(count, type);
        rank.wait();
        ASSERT_EQ(seen->size(), count);
        expect_sums(rank, *seen);
      }
    }),
                Each(kNothing));
  }
}

TEST_P(Collectives, BroadcastFromEveryRank) {
  Ranks ranks({.seed = 2, .ranks = GetParam()});
  EXPECT_THAT(ranks.run_started([&](Rank& rank) {
    EXPECT_EQ(rank.communicator().size(), GetParam());
    for (int root = 0; root < GetParam(); ++root) {
      const auto seen = rank.broadcast(1001, root);
      rank.wait();
      ASSERT_EQ(seen->size(), 1001U);
      for (std::uint64_t i = 0; i < seen->size(); ++i) {
        ASSERT_EQ((*seen)[i], Rank::brought(root, i)) << "from rank " << root << ", float " << i;
      }
    }
  }),
              Each(kNothing));
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, ::testing::Values(1, 2, 3, 4),
                         ::testing::PrintToStringParamName());

// Regression: only the memory of two connections was counted: those for sums of one value and of a whole
// bucket. The first broadcast and the first sum of a middle size allocated 6 MiB more, outside any budget.
TEST_P(Collectives, TakeNoMemoryThatWasNotCounted) {
  constexpr std::uint64_t kConnection = std::uint64_t{3} << 20;
  const std::uint64_t connections = GetParam() == 1 ? 0 : 4;
  Ranks ranks({.seed = 3, .ranks = GetParam(), .connection_bytes = kConnection});
  const std::vector<std::string> said = ranks.run_started([&](Rank& rank) {
    FakeCuda& cuda = ranks.cuda(rank.communicator().rank());
    EXPECT_EQ(rank.communicator().library_bytes(), connections * kConnection);
    const std::uint64_t before = Rank::free_bytes(cuda);
    for (const std::uint64_t count : kCounts) {
      rank.all_reduce(count);
      rank.all_reduce(count, DataType::kBf16);
      rank.broadcast(count, 0);
      rank.wait();
    }
    EXPECT_EQ(Rank::free_bytes(cuda), before);
  });
  EXPECT_THAT(said, Each(kNothing));
}

TEST(NcclCommunicator, RefusesWhatCannotBeAndGoesOn) {
  Ranks ranks({.ranks = 2});
  EXPECT_THAT(ranks.run_started([](Rank& rank) {
    Communicator& communicator = rank.communicator();
    const Collective odd{.name = "odd", .range = {.begin = rank.floats(1).begin, .bytes = 6}};
    EXPECT_THROW(communicator.all_reduce(rank.communication(), odd), InvalidArgument);
    EXPECT_THROW(communicator.all_reduce(rank.communication(), std::span<const Collective>()),
                 InvalidArgument);
    EXPECT_THROW(communicator.broadcast(rank.communication(), odd, 0), InvalidArgument);
    for (const DataType type : {DataType::kI32, DataType::kU8}) {
      const Collective other{.name = "other", .range = rank.floats(1), .type = type};
      EXPECT_THROW(communicator.all_reduce(rank.communication(), other), InvalidArgument);
    }
    const std::array mixed{Collective{.name = "mixed", .range = rank.floats(1)},
                           Collective{.name = "mixed", .range = rank.floats(1), .type = DataType::kBf16}};
    EXPECT_THROW(communicator.all_reduce(rank.communication(), mixed), InvalidArgument);
    const Collective sound{.name = "sound", .range = rank.floats(1)};
    EXPECT_THROW(communicator.broadcast(rank.communication(), sound, 2), InvalidArgument);
    EXPECT_THROW(communicator.broadcast(rank.communication(), sound, -1), InvalidArgument);
    // The point is of work that was never submitted, so no wait for it could end.
    EXPECT_THROW(communicator.wait(Frontier({.stream = 0, .count = 1})), InvalidArgument);
    const auto seen = rank.all_reduce(3);
    rank.wait();
    expect_sums(rank, *seen);
  }),
              Each(kNothing));
}

// Regression: the second collective of a capture was refused after it had been submitted. A wait inside the
// capture, which is misuse, ended the communicator.
TEST(NcclCommunicator, CollectivesAreCapturedAndAWaitInsideIsRefused) {
  Ranks ranks({.ranks = 1});
  EXPECT_THAT(ranks.run_started([](Rank& rank) {
    const auto before = rank.all_reduce(3);
    std::array<std::shared_ptr<const std::vector<float>>, 2> seen;
    rank.capture([&] {
      seen = {rank.all_reduce(5), rank.all_reduce(7)};
      EXPECT_THROW(rank.wait(), InvalidArgument);
    });
    rank.wait();
    expect_sums(rank, *before);
    EXPECT_EQ(seen[0]->size(), 5U);
    EXPECT_EQ(seen[1]->size(), 7U);
    expect_sums(rank, *seen[0]);
    expect_sums(rank, *seen[1]);
  }),
              Each(kNothing));
}

// If ranks captured collectives and one of them gave up, NCCL would wait for the graph's end. Regression: the
// refused capture ended the communicator.
TEST(NcclCommunicator, CollectivesOfSeveralRanksAreNotCaptured) {
  Ranks ranks({.ranks = 2});
  EXPECT_THAT(ranks.run_started([](Rank& rank) {
    rank.capture([&] {
      EXPECT_THROW(rank.all_reduce(5), InvalidArgument);
      EXPECT_THROW(rank.broadcast(5, 0), InvalidArgument);
    });
    const auto seen = rank.all_reduce(3);
    rank.wait();
    expect_sums(rank, *seen);
  }),
              Each(kNothing));
}

TEST(NcclCommunicator, RefusesOptionsThatCannotBe) {
  const auto refused = [](const std::function<void(NcclOptions&)>& change) {
    Ranks ranks({.ranks = 1});
    ranks.run([&](int) {
      const auto rank = ranks.make(0);
      NcclOptions options{.ordinal = Rank::kOrdinal, .exchange_id = [](NcclId&) {}};
      change(options);
      EXPECT_THROW(make_nccl_communicator(
                       rank->device(), options, [] { return std::shared_ptr<NcclApi>(); }, nullptr),
                   InvalidArgument);
      EXPECT_THROW(make_nccl_communicator(rank->device(), options), InvalidArgument);
    });
  };
  refused([](NcclOptions& options) { options.rank = 1; });
  refused([](NcclOptions& options) { options.rank = -1; });
  refused([](NcclOptions& options) { options.size = 0; });
  refused([](NcclOptions& options) { options.ordinal = 0; });  // not the device's ordinal
  refused([](NcclOptions& options) { options.start_seconds = 0; });
  refused([](NcclOptions& options) { options.wait_seconds = -1; });
  refused([](NcclOptions& options) { options.exchange_id = nullptr; });
}

// --- starting ----------------------------------------------------------------------------------------------

TEST(NcclCommunicator, RanksThatAreNotJoinedInTimeSayWhatTheyWaitedFor) {
  Ranks ranks({.ranks = 3, .aborts_are_heard = false});
  const std::vector<std::string> said = ranks.run([&](int rank) {
    if (rank != 2) {  // rank 2 never joins
      ranks.make(rank);
    }
  });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(said[static_cast<std::size_t>(rank)],
                AllOf(HasSubstr("cuda:1: rank " + std::to_string(rank) + " of 3"),
                      HasSubstr("ncclCommInitRankConfig: waited 60 s, but not all ranks have joined")));
  }
}

TEST(NcclCommunicator, WhereRankZeroCannotMakeAnIdAllRanksAreToldAtOnce) {
  Ranks ranks({.ranks = 3});
  ranks.nccl().fail_call(0, 1, NcclStatus::kSystemError);
  const std::vector<std::string> said = ranks.run([&](int rank) { ranks.make(rank); });
  EXPECT_THAT(said[0], AllOf(HasSubstr("rank 0 of 3"), HasSubstr("ncclGetUniqueId: NCCL error 2")));
  EXPECT_THAT(said[1], HasSubstr("rank 1 of 3: rank 0 could not start NCCL"));
  EXPECT_THAT(said[2], HasSubstr("rank 2 of 3: rank 0 could not start NCCL"));
}

TEST(NcclCommunicator, ARankWithoutNcclTakesPartInTheExchangeAllTheSame) {
  Ranks ranks({.ranks = 1});
  bool exchanged = false;
  const std::vector<std::string> said = ranks.run([&](int) {
    const auto rank = ranks.make(0);
    make_nccl_communicator(
        rank->device(), {.ordinal = 1, .exchange_id = [&](NcclId& id) { exchanged = id == NcclId{}; }},
        []() -> std::shared_ptr<NcclApi> { throw DeviceError("no library"); }, nullptr);
  });
  EXPECT_EQ(said[0], "no library");
  EXPECT_TRUE(exchanged) << "otherwise the other ranks wait for this one";
}

// --- failing -----------------------------------------------------------------------------------------------

// The errors that all later calls throw.
std::vector<std::string> said_by_every_call(Rank& rank) {
  Communicator& communicator = rank.communicator();
  const Collective collective{.name = "later", .range = rank.floats(4)};
  communicator.break_off("another cause");
  return {thrown_by([&] { communicator.all_reduce(rank.communication(), collective); }),
          thrown_by([&] { communicator.broadcast(rank.communication(), collective, 0); }),
          thrown_by([&] { communicator.wait({}); })};
}

class Failures : public ::testing::TestWithParam<bool> {
 protected:
  FakeNcclOptions three() const { return {.ranks = 3, .aborts_are_heard = GetParam()}; }
};

TEST_P(Failures, ARankThatHangsEndsTheWaitsOfAllWithTheCollectiveNamed) {
  Ranks ranks(three());
  const std::vector<std::string> said = ranks.run_started([&](Rank& rank) {
    const auto seen = rank.all_reduce(5);
    rank.wait();
    expect_sums(rank, *seen);
    if (rank.communicator().rank() == 1) {
      ranks.nccl().let_pass(4 * kWaitSeconds);
      rank.wait();  // this rank has no work in flight, so all it can learn is that another rank has aborted
      return;
    }
    rank.all_reduce(7);
    const std::string first = thrown_by([&] { rank.wait(); });
    EXPECT_THAT(said_by_every_call(rank), Each(first));
    throw DeviceError(first);
  });
  for (const int rank : {0, 2}) {
    EXPECT_THAT(
        said[static_cast<std::size_t>(rank)],
        AllOf(HasSubstr("rank " + std::to_string(rank) + " of 3"),
              AnyOf(HasSubstr(
                        "ncclAllReduce 'reduce conv1' of 28 bytes: waited 30 s, but it has not completed"),
                    HasSubstr("NCCL error 6"))));
  }
  EXPECT_THAT(said, ::testing::Contains(HasSubstr("waited 30 s, but it has not completed")));
  EXPECT_THAT(said[1], GetParam() ? HasSubstr("NCCL error 6") : HasSubstr(kNothing));
}

// Regression: a caller waited forever for a collective whose end could not be recorded.
TEST_P(Failures, ACollectiveWhoseEndCannotBeRecordedEndsInTimeToo) {
  Ranks ranks(three());
  const std::vector<std::string> said = ranks.run_started([&](Rank& rank) {
    if (rank.communicator().rank() == 1) {
      ranks.nccl().let_pass(4 * kWaitSeconds);
      return;
    }
    if (rank.communicator().rank() == 0) {
      ranks.cuda(0).fail_call(2, CudaStatus::kInvalidValue, "cudaEventRecord");
    }
    rank.all_reduce(7);
    rank.wait();
  });
  EXPECT_EQ(ranks.cuda(0).failed_call(), "cudaEventRecord");
  EXPECT_THAT(said[0],
              AllOf(HasSubstr("rank 0 of 3"),
                    AnyOf(HasSubstr("waited 30 s, but it has not completed"), HasSubstr("NCCL error 6"))));
}

TEST_P(Failures, AnErrorThatComesLateOnOneRankEndsItOnAll) {
  Ranks ranks(three());
  const std::vector<std::string> said = ranks.run_started([&](Rank& rank) {
    rank.all_reduce(5);
    rank.wait();
    if (rank.communicator().rank() == 2) {
      ranks.nccl().fail_asynchronously(2, NcclStatus::kSystemError);
    }
    for (int step = 0; step < 3; ++step) {
      rank.all_reduce(5);
      rank.wait();
    }
  });
  EXPECT_THAT(said[2], AllOf(HasSubstr("rank 2 of 3"), HasSubstr("NCCL error 2 (so says the fake)")));
  for (const int rank : {0, 1}) {
    EXPECT_THAT(said[static_cast<std::size_t>(rank)],
                AnyOf(HasSubstr("NCCL error 6"), HasSubstr("waited 30 s")));
  }
}

TEST_P(Failures, WhoGivesUpEndsItOnAll) {
  Ranks ranks(three());
  const std::vector<std::string> said = ranks.run_started([&](Rank& rank) {
    if (rank.communicator().rank() == 0) {
      rank.communicator().break_off("out of memory");
      EXPECT_THAT(said_by_every_call(rank), Each("cuda:1: rank 0 of 3: out of memory"));
      return;
    }
    rank.all_reduce(100);
    rank.wait();
  });
  EXPECT_EQ(said[0], kNothing);
  for (const int rank : {1, 2}) {
    EXPECT_THAT(said[static_cast<std::size_t>(rank)],
                AnyOf(HasSubstr("NCCL error 6"), HasSubstr("waited 30 s")));
  }
}

TEST_P(Failures, WorkThatFailsOnOneDeviceEndsItOnAll) {
  Ranks ranks(three());
  const std::vector<std::string> said = ranks.run_started([&](Rank& rank) {
    if (rank.communicator().rank() == 0) {
      rank.device().submit(rank.communication(),
                           {.name = "work", .reads = {}, .writes = {}, .cost = {}, .run = [](void*) {
                              throw DataError("a kernel is missing");
                            }});
      EXPECT_EQ(thrown_by([&] { rank.communicator().wait(rank.device().frontier(rank.communication())); }),
                "a kernel is missing");
      EXPECT_THAT(said_by_every_call(rank), Each("a kernel is missing"));
      return;
    }
    rank.all_reduce(100);
    rank.wait();
  });
  for (const int rank : {1, 2}) {
    EXPECT_THAT(said[static_cast<std::size_t>(rank)],
                AnyOf(HasSubstr("NCCL error 6"), HasSubstr("waited 30 s")));
  }
}

TEST_P(Failures, ACommunicatorThatAnExceptionTakesAwayAborts) {
  Ranks ranks(three());
  std::atomic<double> waited = 0;
  const std::vector<std::string> said = ranks.run_started([&](Rank& rank) {
    if (rank.communicator().rank() == 0) {
      throw DataError("the data set ended");
    }
    const double begin = ranks.nccl().now_seconds();
    rank.all_reduce(100);
    try {
      rank.wait();
    } catch (const DeviceError&) {
      waited = ranks.nccl().now_seconds() - begin;
      throw;
    }
  });
  EXPECT_EQ(said[0], "the data set ended");
  for (const int rank : {1, 2}) {
    EXPECT_THAT(said[static_cast<std::size_t>(rank)],
                AnyOf(HasSubstr("NCCL error 6"), HasSubstr("waited 30 s")));
  }
  if (GetParam()) {
    EXPECT_LT(waited, kWaitSeconds) << "the other ranks did not notice the abort";
  }
}

INSTANTIATE_TEST_SUITE_P(Heard, Failures, ::testing::Bool(), ::testing::PrintToStringParamName());

TEST(NcclCommunicator, WaitsOfSeveralThreadsAllSayTheFirstCause) {
  Ranks ranks({.ranks = 1});
  ranks.run_started([](Rank& rank) {
    std::atomic<int> said = 0;
    std::array<std::thread, 3> threads;
    for (std::thread& thread : threads) {
      thread = std::thread([&] {
        while (thrown_by([&] { rank.communicator().wait({}); }) == kNothing) {
        }
        said += static_cast<int>(thrown_by([&] { rank.wait(); }) == "cuda:1: rank 0 of 1: enough");
      });
    }
    for (int step = 0; step < 20; ++step) {
      rank.all_reduce(10);
    }
    rank.communicator().break_off("enough");
    std::ranges::for_each(threads, [](std::thread& thread) { thread.join(); });
    EXPECT_EQ(said, 3);
  });
}

// Every call of every rank fails, one in each run. No rank hangs, nothing leaks, and every rank without an
// error has the right sums.
class EveryCallFails : public ::testing::TestWithParam<int> {
 protected:
  // `fail` makes the nth call of a rank fail. `failed` returns the name of the failed call, "" if there were
  // fewer calls. Returns how many calls failed.
  std::uint64_t on_each_rank(const std::function<void(Ranks&, int rank, std::uint64_t nth)>& fail,
                             const std::function<std::string(Ranks&, int rank)>& failed,
                             const std::string& error) const {
    std::uint64_t calls = 0;
    for (int failing = 0; failing < GetParam(); ++failing) {
      for (std::uint64_t nth = 1;; ++nth, ++calls) {
        SCOPED_TRACE("call " + std::to_string(nth) + " of rank " + std::to_string(failing));
        Ranks ranks({.seed = nth, .ranks = GetParam(), .aborts_are_heard = nth % 2 == 0});
        fail(ranks, failing, nth);
        const std::vector<std::string> said = ranks.run_started(two_rounds);
        const std::string name = failed(ranks, failing);
        if (name.empty()) {
          EXPECT_THAT(said, Each(kNothing));
          break;
        }
        EXPECT_THAT(said[static_cast<std::size_t>(failing)], AnyOf(kNothing, HasSubstr(error))) << name;
      }
    }
    return calls;
  }

 private:
  static void two_rounds(Rank& rank) {
    const auto first = rank.all_reduce(100);
    rank.wait();
    const auto second = rank.broadcast(3, 0);
    rank.wait();
    ASSERT_EQ(first->size(), 100U);
    expect_sums(rank, *first);
    ASSERT_EQ(second->size(), 3U);
    ASSERT_EQ(second->back(), Rank::brought(0, 2));
  }
};

TEST_P(EveryCallFails, OfNccl) {
  const std::uint64_t calls =
      on_each_rank([](Ranks& ranks, int rank,
                      std::uint64_t nth) { ranks.nccl().fail_call(rank, nth, NcclStatus::kInternalError); },
                   [](Ranks& ranks, int rank) { return ranks.nccl().failed_call(rank); }, "NCCL error 3");
  std::cout << "  " << calls << " calls of NCCL failed on " << GetParam() << " ranks\n";
}

TEST_P(EveryCallFails, OfCuda) {
  const std::uint64_t calls = on_each_rank(
      [](Ranks& ranks, int rank, std::uint64_t nth) {
        ranks.cuda(rank).fail_call(nth, CudaStatus::kInvalidValue);
      },
      [](Ranks& ranks, int rank) { return ranks.cuda(rank).failed_call(); }, "cudaErrorInvalidValue");
  std::cout << "  " << calls << " calls of CUDA failed on " << GetParam() << " ranks\n";
}

INSTANTIATE_TEST_SUITE_P(Ranks, EveryCallFails,
                         ::testing::Range<int>(2, 1 + static_cast<int>(testing::extent({.usual = 4,
                                                                                        .under_sanitizers = 2,
                                                                                        .in_long_run = 4}))),
                         ::testing::PrintToStringParamName());

// Starts the real NCCL on a fake device. Returns NCCL's error, or "".
std::string start_nccl() {
  std::string said;
  Ranks ranks({.ranks = 1});
  ranks.run_started([&](Rank& rank) {
    try {
      make_nccl_communicator(rank.device(), {.ordinal = Rank::kOrdinal, .exchange_id = [](NcclId&) {}});
    } catch (const DeviceError& error) {
      said = error.what();
    }
  });
  return said;
}

// Without a GPU, NCCL reports the reason.
TEST(NcclCommunicator, OnThisMachineStartsOrSaysWhyNot) {
  const std::string said = start_nccl();
  EXPECT_THAT(said, AnyOf("", HasSubstr("this build has no NCCL"), HasSubstr("cannot be loaded"),
                          HasSubstr("NCCL is too old"), HasSubstr("cuda:1")));
  std::cout << "  " << (said.empty() ? "started" : said) << '\n';
}

// NCCL_COMM_BLOCKING=1 overrides our options: NCCL's calls would wait forever for a missing rank. Regression:
// we did not look at this variable, and started NCCL.
TEST(NcclCommunicator, AnEnvironmentThatMakesNcclWaitIsRefused) {
  ::setenv("NCCL_COMM_BLOCKING", "1", 1);
  const std::string said = start_nccl();
  ::unsetenv("NCCL_COMM_BLOCKING");
  EXPECT_THAT(said, AnyOf(HasSubstr("this build has no NCCL"), HasSubstr("NCCL_COMM_BLOCKING")));
}

}  // namespace
}  // namespace vdnn::nccl_communicator_test
