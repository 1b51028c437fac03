// Collectives of ranks in one process. The ranks' GPUs read each other's buffers, which lie in memory of
// stream pools.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "streams/cuda/cuda_pool_backend.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/fakes/fake_nccl.h"
#include "vdnn/stream_pool.h"

namespace vdnn::peer_collectives_test {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int kRanks = 2;
constexpr std::uint64_t kCount = 1000;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

struct Rank {
  std::shared_ptr<NcclApi> nccl;
  NcclComm comm = nullptr;
  CudaStream stream = nullptr;
  std::unique_ptr<PoolBackend> backend;
  std::unique_ptr<StreamPool> pool;
  AddressRange block;
};

class PeerCollectives : public ::testing::Test {
 protected:
  // Returns each rank's result of an all-reduce over memory of pools.
  std::vector<float> reduce(bool peer_access) {
    std::array<Rank, kRanks> ranks;
    NcclId id{};
    for (int number = 0; number < kRanks; ++number) {
      Rank& rank = ranks.at(static_cast<std::size_t>(number));
      rank.nccl = nccl_.api(number, cuda_);
      if (number == 0) {
        rank.nccl->get_unique_id(id);
      }
      cuda_->set_device(number);
      cuda_->stream_create(rank.stream);
      rank.backend = make_cuda_pool_backend(number, cuda_, {.peer_access = peer_access});
      rank.pool = std::make_unique<StreamPool>(*rank.backend, StreamPoolOptions{.budget_bytes = 8 * kMiB});
      rank.block = rank.pool->allocate(kCount * sizeof(float), rank.stream).value();
      rank.nccl->comm_init_rank(rank.comm, kRanks, id, number);
    }
    for (Rank& rank : ranks) {
      cuda_->set_device(static_cast<int>(&rank - ranks.data()));
      fill(rank);
      NcclStatus status = NcclStatus::kInProgress;
      rank.nccl->comm_get_async_error(rank.comm, status);
      rank.nccl->all_reduce(rank.block.begin, kCount, DataType::kF32, rank.comm, rank.stream);
      rank.nccl->comm_get_async_error(rank.comm, status);  // launches the collective if it is pending
    }
    cuda_->rest();
    std::vector<float> results;
    for (Rank& rank : ranks) {
      results.push_back(*pointer_to<const float>(rank.block.begin));
      rank.nccl->comm_finalize(rank.comm);
      rank.nccl->comm_destroy(rank.comm);
      rank.pool.reset();
      rank.backend.reset();
      cuda_->stream_destroy(rank.stream);
    }
    EXPECT_THAT(nccl_.misuses(), IsEmpty());
    EXPECT_THAT(cuda_->misuses(), IsEmpty());
    return results;
  }

  FakeNccl nccl_{{.ranks = kRanks}};
  std::shared_ptr<FakeCuda> cuda_ =
      std::make_shared<FakeCuda>(FakeCudaOptions{.gpus = kRanks, .memory_bytes = 16 * kMiB});

 private:
  static void fill(const Rank& rank) {
    const Access filled{.range = rank.block};
    const auto begin = rank.block.begin;
    FakeCuda::launch(rank.stream, [begin] { std::fill_n(pointer_to<float>(begin), kCount, 1.5F); },
                     {.name = "fill", .reads = {}, .writes = {&filled, 1}});
  }
};

TEST_F(PeerCollectives, ReadBuffersOfOtherRanks) {
  EXPECT_THAT(reduce(/*peer_access=*/true), Each(3));
  EXPECT_THAT(cuda_->findings(), IsEmpty());
}

TEST_F(PeerCollectives, ReadsWithoutAccessAreFound) {
  reduce(/*peer_access=*/false);
  EXPECT_THAT(cuda_->findings(), Not(IsEmpty()));
}

TEST_F(PeerCollectives, RanksWithOneGpuAreFound) {
  NcclId id{};
  const auto first = nccl_.api(0, cuda_);
  const auto second = nccl_.api(1, cuda_);
  first->get_unique_id(id);
  NcclComm comm = nullptr;
  NcclComm none = nullptr;
  cuda_->set_device(0);
  EXPECT_EQ(first->comm_init_rank(comm, kRanks, id, 0), NcclStatus::kInProgress);
  EXPECT_EQ(second->comm_init_rank(none, kRanks, id, 1), NcclStatus::kInvalidUsage);
  EXPECT_THAT(nccl_.misuses(), SizeIs(1));
  first->comm_abort(comm);
}

}  // namespace
}  // namespace vdnn::peer_collectives_test
