// The stream pool against a naive model: random operations on several streams, in memory of the `cpu` device.
// Blocks never overlap and keep their contents, and the statistics are exact.

#include "tests/allocator/stream_pool_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "tests/extent.h"
#include "vdnn/cpu_device.h"
#include "vdnn/size.h"
#include "vdnn/stream_pool.h"

namespace vdnn::stream_pool_model_test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr StreamId kStreams = 4;

struct Setting {
  std::string name;
  StreamPoolOptions options;
  StreamId streams = kStreams;
  std::uint64_t live_bytes = 24 * kMiB;  // target for the bytes handed out
};

std::ostream& operator<<(std::ostream& out, const Setting& setting) {
  return out << setting.name;
}

std::vector<Setting> settings() {
  return {{.name = "Roomy", .options = {.budget_bytes = 256 * kMiB}},
          {.name = "OneStream", .options = {.budget_bytes = 256 * kMiB}, .streams = 1},
          {.name = "Tight", .options = {.budget_bytes = 32 * kMiB}, .live_bytes = 40 * kMiB},
          {.name = "TightWithoutCaches",
           .options = {.budget_bytes = 32 * kMiB, .cache_bytes = 0},
           .live_bytes = 40 * kMiB},
          {.name = "SmallCaches", .options = {.budget_bytes = 256 * kMiB, .cache_bytes = kMiB / 4}},
          {.name = "HighWater",
           .options = {.budget_bytes = 256 * kMiB, .high_water_bytes = 16 * kMiB, .ends_are_told = true}}};
}

class RandomOperations {
 public:
  RandomOperations(const Setting& setting, std::uint64_t seed)
      : setting_(setting), random_(seed), device_(make_cpu_device({.budget_bytes = 256 * kMiB})) {
    for (StreamId stream = 0; stream < setting.streams; ++stream) {
      device_->create_stream("stream " + std::to_string(stream));
    }
    backend_ = make_pool_backend(*device_);
    pool_ = std::make_unique<StreamPool>(*backend_, setting.options);
    model_ = std::make_unique<StreamPoolModel>(*pool_, setting.options, true);
  }

  void run(std::uint64_t operations) {
    for (std::uint64_t i = 0; i < operations && !::testing::Test::HasFatalFailure(); ++i) {
      step();
      if (i % 20000 == 0) {
        check();
      }
    }
    if (!::testing::Test::HasFailure()) {
      check();
      drain();
    }
  }

 private:
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  StreamHandle any_stream() { return stream_handle(static_cast<StreamId>(below(setting_.streams))); }
  // All magnitudes up to 4 MiB; small ones are more likely, and a third of the sizes are powers of two.
  std::uint64_t any_size() {
    const std::uint64_t bits = below(4) == 0 ? below(22) : below(16);
    const std::uint64_t bytes = (std::uint64_t{1} << bits) + below(std::uint64_t{1} << bits);
    return below(3) == 0 ? std::uint64_t{1} << bits : bytes;
  }

  void step() {
    const bool full = model_bytes_ >= setting_.live_bytes;
    if (addresses_.empty() || below(100) < (full ? 30U : 55U)) {
      allocate();
    } else if (below(1000) == 0) {
      pool_->trim(below(2) == 0 ? 0 : 8 * kMiB);
    } else if (below(50) == 0) {
      misuse();
    } else {
      free_one();
    }
  }

  void allocate() {
    const std::uint64_t bytes = any_size();
    const BlockLife life = below(20) == 0 ? BlockLife::kPersistent : BlockLife::kTransient;
    const bool ready = below(16) == 0;
    const StreamHandle stream = ready ? nullptr : any_stream();
    const auto range = ready ? pool_->allocate_ready(bytes, life) : pool_->allocate(bytes, stream, life);
    if (!range) {
      ASSERT_LT(free_granules(), round_up(bytes, granule())) << "refused without need";
      // Gaps between large blocks may exceed the request: the pool does not use them for small blocks.
      const std::uint64_t fits = pool_->shortage(bytes).would_have_fitted;
      const std::uint64_t small = std::min(setting_.options.small_bytes, granule());
      ASSERT_TRUE(life == BlockLife::kPersistent || (bytes <= small && fits > small) || fits < bytes)
          << bytes << " bytes were refused although this many would have fitted: " << fits << "\n"
          << pool_->picture();
      free_one();
      return;
    }
    ASSERT_EQ(range->bytes, bytes);
    ASSERT_EQ(range->begin % device_->properties().alignment_bytes, 0U);
    model_->allocated(*range, stream, life);
    addresses_.push_back(range->begin);
    model_bytes_ += bytes;
  }

  void free_one() {
    if (addresses_.empty()) {
      return;
    }
    // Half of the time the latest block.
    const std::uint64_t back = below(2) == 0 ? 0 : below(addresses_.size());
    std::swap(addresses_[addresses_.size() - 1 - back], addresses_.back());
    const std::uint64_t address = addresses_.back();
    addresses_.pop_back();
    const ModelBlock block = model_->live().at(address);
    model_bytes_ -= block.bytes;
    model_->freed(address);
    switch (below(8)) {
      case 0:
        pool_->free_idle(address);
        break;
      case 1:
        pool_->free(address, any_stream());
        break;
      case 2:
        pool_->used_on(address, any_stream());
        pool_->free(address);
        break;
      default:
        pool_->free(address);
    }
    freed_ = address;
  }

  void misuse() {
    std::vector<std::uint64_t> wrong{0, 1, std::numeric_limits<std::uint64_t>::max(),
                                     addresses_[below(addresses_.size())] + 1};
    if (!model_->live().contains(freed_)) {
      wrong.push_back(freed_);
    }
    const std::uint64_t address = wrong[below(wrong.size())];
    EXPECT_THROW(pool_->free(address), InvalidArgument);
    EXPECT_THROW(pool_->free(address, any_stream()), InvalidArgument);
    EXPECT_THROW(pool_->free_idle(address), InvalidArgument);
    EXPECT_THROW(pool_->used_on(address, any_stream()), InvalidArgument);
    EXPECT_EQ(pool_->find(address), std::nullopt);
  }

  // Counts wholly free granules and those that the budget still allows, but not granules that slabs in use
  // overlap. (A refused request has already given free slabs back.)
  std::uint64_t free_granules() const {
    std::uint64_t bytes = setting_.options.budget_bytes - pool_->statistics().all.reserved.current;
    for (const PoolPiece& piece : pool_->snapshot()) {
      if (piece.state == PoolPiece::State::kFree && piece.kind == BlockKind::kLarge) {
        const std::uint64_t begin = round_up(piece.range.begin, granule());
        const std::uint64_t end = piece.range.end() / granule() * granule();
        bytes += end > begin ? end - begin : 0;
      }
    }
    return bytes;
  }

  std::uint64_t granule() const { return device_->properties().granule_bytes; }

  void check() {
    // Blocks of allocate_ready() belong to the host, which the model treats as another stream.
    model_->check(setting_.options.cache_bytes == 0);
    const std::uint64_t reserved = pool_->statistics().all.reserved.current;
    EXPECT_EQ(reserved, device_->counters().committed_bytes);
    EXPECT_EQ(pool_->statistics().all.reserved.peak, device_->counters().peak_committed_bytes);
    EXPECT_LE(reserved, setting_.options.budget_bytes);
  }

  // Frees all blocks. All memory is then free, in one piece per kind, and can be given back.
  void drain() {
    while (!addresses_.empty() && !::testing::Test::HasFatalFailure()) {
      free_one();
    }
    pool_->trim(std::numeric_limits<std::uint64_t>::max());
    const PoolPiece* before = nullptr;
    const std::vector<PoolPiece> pieces = pool_->snapshot();
    for (const PoolPiece& piece : pieces) {
      EXPECT_TRUE(piece.state == PoolPiece::State::kFree || piece.state == PoolPiece::State::kVacant);
      EXPECT_TRUE(before == nullptr || before->kind != piece.kind || before->state != piece.state);
      before = &piece;
    }
    check();
    pool_->trim();
    EXPECT_EQ(pool_->snapshot().size(), 1U) << "all memory is one piece";
    EXPECT_EQ(device_->counters().committed_bytes, 0U);
    check();
  }

  const Setting setting_;
  std::mt19937_64 random_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<PoolBackend> backend_;
  std::unique_ptr<StreamPool> pool_;
  std::unique_ptr<StreamPoolModel> model_;
  std::vector<std::uint64_t> addresses_;
  std::uint64_t model_bytes_ = 0;
  std::uint64_t freed_ = 0;
};

class StreamPoolModelTest : public ::testing::TestWithParam<Setting> {};

INSTANTIATE_TEST_SUITE_P(All, StreamPoolModelTest, ::testing::ValuesIn(settings()),
                         [](const auto& test) { return test.param.name; });

// One million operations over all settings.
TEST_P(StreamPoolModelTest, RandomOperations) {
  const std::uint64_t seeds = testing::extent({.usual = 2, .under_sanitizers = 1, .in_long_run = 20});
  const std::uint64_t operations =
      testing::extent({.usual = 84000, .under_sanitizers = 20000, .in_long_run = 200000});
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__,
                                       "RandomOperations(" + GetParam().name + ", " + std::to_string(seed) +
                                           ").run(" + std::to_string(operations) + ")");
    RandomOperations(GetParam(), seed).run(operations);
    ASSERT_FALSE(HasFailure());
  }
}

}  // namespace
}  // namespace vdnn::stream_pool_model_test
