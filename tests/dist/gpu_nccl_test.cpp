// NCCL itself, over all GPUs of this machine, one thread per GPU. Without a GPU, each case is skipped with
// the reason.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "vdnn/cuda_device.h"
#include "vdnn/error.h"
#include "vdnn/gpu_system.h"
#include "vdnn/nccl_communicator.h"

namespace vdnn {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr std::uint64_t kBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kFloats = kBytes / sizeof(float);

// Passes rank 0's id to all threads.
class Board {
 public:
  void exchange(int rank, NcclId& id) {
    std::unique_lock lock(mutex_);
    if (rank == 0) {
      id_ = id;
      posted_.notify_all();
    }
    // If rank 0 fails before it has an id, it posts nothing.
    posted_.wait_for(lock, std::chrono::minutes(1), [this] { return id_.has_value(); });
    id = id_.value_or(NcclId{});
  }

 private:
  std::mutex mutex_;
  std::condition_variable posted_;
  std::optional<NcclId> id_;
};

// A rank: its GPU, a block of the GPU's memory and one of the host's.
class Rank {
 public:
  Rank(Board& board, int rank, int size, double wait_seconds)
      : device_(make_cuda_device({.ordinal = rank})),
        stream_(device_->create_stream("communication")),
        block_{.begin = device_->reserve(kBytes).begin, .bytes = kBytes},
        host_(device_->allocate_pinned(kBytes)),
        communicator_(make_nccl_communicator(
            *device_, {.rank = rank,
                       .size = size,
                       .ordinal = rank,
                       .exchange_id = [&board, rank](NcclId& id) { board.exchange(rank, id); },
                       .wait_seconds = wait_seconds})) {
    device_->commit(block_);
  }

  Communicator& communicator() { return *communicator_; }

  float* values() const { return pointer_to<float>(host_.begin); }
  void upload() {
    device_->copy(stream_, {.name = "upload",
                            .direction = CopyDirection::kHostToDevice,
                            .destination = {.range = block_},
                            .source = {.range = host_}});
  }
  void download() {
    device_->copy(stream_, {.name = "download",
                            .direction = CopyDirection::kDeviceToHost,
                            .destination = {.range = host_},
                            .source = {.range = block_}});
  }
  // Reduces the block as a bucket of two parameters of different sizes.
  void all_reduce() {
    std::array parts{Collective{.name = "reduce", .range = block_},
                     Collective{.name = "reduce", .range = block_}};
    parts[0].range.bytes = block_.bytes / sizeof(float) / 3 * sizeof(float);
    parts[1].range.begin += parts[0].range.bytes;
    parts[1].range.bytes -= parts[0].range.bytes;
    communicator_->all_reduce(stream_, parts);
  }
  void broadcast(int root) {
    communicator_->broadcast(stream_, {.name = "broadcast", .range = block_}, root);
  }
  void wait() { communicator_->wait(device_->frontier(stream_)); }

 private:
  std::unique_ptr<Device> device_;
  StreamId stream_;
  AddressRange block_;
  AddressRange host_;
  std::unique_ptr<Communicator> communicator_;
};

class GpuNccl : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      size_ = make_gpu_system()->count();
    } catch (const DeviceError& error) {
      GTEST_SKIP() << error.what();
    }
  }

  // Runs work(rank) on every rank; returns each rank's error, or "".
  std::vector<std::string> run(double wait_seconds, const std::function<void(Rank&)>& work) const {
    Board board;
    std::vector<std::string> said(static_cast<std::size_t>(size_));
    std::vector<std::thread> threads;
    threads.reserve(said.size());
    for (int rank = 0; rank < size_; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          Rank mine(board, rank, size_, wait_seconds);
          work(mine);
        } catch (const std::exception& error) {
          said[static_cast<std::size_t>(rank)] = error.what();
        }
      });
    }
    std::ranges::for_each(threads, [](std::thread& thread) { thread.join(); });
    return said;
  }

  int size_ = 0;
};

TEST_F(GpuNccl, SumsAndBroadcasts) {
  EXPECT_THAT(run(30,
                  [this](Rank& rank) {
                    const int mine = rank.communicator().rank();
                    std::iota(rank.values(), rank.values() + 1000, static_cast<float>(mine));
                    std::fill(rank.values() + 1000, rank.values() + kFloats, static_cast<float>(mine + 1));
                    rank.upload();
                    rank.all_reduce();
                    rank.download();
                    rank.wait();
                    const auto ranks = static_cast<float>(size_);
                    EXPECT_EQ(rank.values()[500], ranks * 500 + ranks * (ranks - 1) / 2);
                    EXPECT_EQ(rank.values()[kFloats - 1], ranks * (ranks + 1) / 2);
                    std::fill(rank.values(), rank.values() + kFloats, static_cast<float>(mine));
                    rank.upload();
                    rank.broadcast(size_ - 1);
                    rank.download();
                    rank.wait();
                    EXPECT_EQ(rank.values()[kFloats / 2], ranks - 1);
                    if (mine == 0) {
                      std::cout << "  " << size_ << " ranks; NCCL took "
                                << rank.communicator().library_bytes() << " bytes of GPU 0\n";
                    }
                  }),
              Each(""));
}

// This test is slow because it waits for a rank that never joins the collective. Only a real GPU can show
// that a kernel in flight can be ended.
TEST_F(GpuNccl, ARankThatDoesNotComeEndsTheWaitOfTheOthers) {
  if (size_ < 2) {
    GTEST_SKIP() << "a single rank waits for no other";
  }
  const std::vector<std::string> said = run(2, [](Rank& rank) {
    rank.all_reduce();
    rank.wait();
    if (rank.communicator().rank() != 0) {
      rank.all_reduce();
      rank.wait();
    }
  });
  for (std::size_t rank = 1; rank < said.size(); ++rank) {
    EXPECT_THAT(said[rank], HasSubstr("rank " + std::to_string(rank)));
  }
}

TEST_F(GpuNccl, AfterAnAbortEveryCallSaysTheCause) {
  EXPECT_THAT(run(30,
                  [](Rank& rank) {
                    rank.communicator().break_off("enough");
                    rank.all_reduce();
                  }),
              Each(HasSubstr("enough")));
}

}  // namespace
}  // namespace vdnn
