#pragma once
// A naive model of a stream pool: the blocks that are handed out, and their bytes. Tests compare the pool's
// statistics with it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "vdnn/stream_pool.h"

namespace vdnn {

struct ModelBlock {
  std::uint64_t bytes = 0;
  StreamHandle stream = nullptr;  // null: none in particular
  BlockKind kind = BlockKind::kSmall;
  std::uint64_t pattern = 0;
};

class StreamPoolModel {
 public:
  // If `touches`, addresses are real memory, and the model writes to blocks and checks their contents.
  StreamPoolModel(const StreamPool& pool, const StreamPoolOptions& options, bool touches)
      : pool_(pool),
        small_bytes_(std::min(options.small_bytes, pool.backend().properties().granule_bytes)),
        touches_(touches) {}

  const std::map<std::uint64_t, ModelBlock>& live() const { return live_; }

  void allocated(AddressRange range, StreamHandle stream, BlockLife life) {
    const auto next = live_.lower_bound(range.begin);
    ASSERT_TRUE(next == live_.end() || range.end() <= next->first) << "overlaps the next block";
    ASSERT_TRUE(next == live_.begin() ||
                std::prev(next)->first + std::prev(next)->second.bytes <= range.begin)
        << "overlaps the previous block";
    const BlockKind kind = range.bytes > small_bytes_       ? BlockKind::kLarge
                           : life == BlockLife::kPersistent ? BlockKind::kPersistent
                                                            : BlockKind::kSmall;
    const ModelBlock block{.bytes = range.bytes, .stream = stream, .kind = kind, .pattern = ++patterns_};
    live_.emplace(range.begin, block);
    for (PoolFigures* figures : {&of_all_, &of_kinds_.at(static_cast<std::size_t>(kind))}) {
      add(figures->blocks, 1);
      add(figures->requested, range.bytes);
    }
    if (touches_) {
      for (const std::uint64_t at : written(range)) {
        std::memcpy(pointer_to<void>(at), &block.pattern, kWord);
      }
    }
  }

  // Call this before the pool frees the block.
  void freed(std::uint64_t address) {
    const ModelBlock block = live_.at(address);
    for (const std::uint64_t at : written({.begin = address, .bytes = block.bytes})) {
      std::uint64_t found = block.pattern;
      if (touches_) {
        std::memcpy(&found, pointer_to<void>(at), kWord);
      }
      ASSERT_EQ(found, block.pattern) << "at " << at - address << " of " << block.bytes;
    }
    live_.erase(address);
    for (PoolFigures* figures : {&of_all_, &of_kinds_.at(static_cast<std::size_t>(block.kind))}) {
      for (const auto& [figure, amount] :
           {std::pair(&figures->blocks, std::uint64_t{1}), std::pair(&figures->requested, block.bytes)}) {
        figure->current -= amount;
        figure->removed += amount;
      }
    }
  }

  // Checks all statistics of the pool. `exact_peaks`: see StreamPoolStatistics.
  void check(bool exact_peaks) const {
    const StreamPoolStatistics now = pool_.statistics();
    const std::vector<PoolPiece> pieces = pool_.snapshot();
    check_pieces(pieces, now);
    check_figures(now.all, of_all_, exact_peaks);
    for (std::size_t kind = 0; kind < kBlockKinds; ++kind) {
      check_figures(now.kinds.at(kind), of_kinds_.at(kind), exact_peaks);
    }
    EXPECT_FALSE(pool_.picture().empty());
  }

 private:
  static constexpr std::uint64_t kWord = sizeof(std::uint64_t);

  static void add(PoolFigure& figure, std::uint64_t amount) {
    figure.current += amount;
    figure.added += amount;
    figure.peak = std::max(figure.peak, figure.current);
  }

  // The addresses at which the model writes to a block: its ends, and some between.
  static std::vector<std::uint64_t> written(AddressRange range) {
    std::vector<std::uint64_t> addresses;
    for (std::uint64_t at = range.begin; at + kWord <= range.end(); at += std::max(kWord, range.bytes / 3)) {
      addresses.push_back(at);
    }
    if (!addresses.empty() && addresses.back() + 2 * kWord <= range.end()) {
      addresses.push_back(range.end() - kWord);
    }
    return addresses;
  }

  static void check_figures(const PoolFigures& found, const PoolFigures& wanted, bool exact_peaks) {
    for (const auto& [is, should] :
         {std::pair(found.blocks, wanted.blocks), std::pair(found.requested, wanted.requested)}) {
      EXPECT_EQ(is.current, should.current);
      EXPECT_EQ(is.added, should.added);
      EXPECT_EQ(is.removed, should.removed);
      EXPECT_GE(is.peak, should.peak);
      EXPECT_TRUE(!exact_peaks || is.peak == should.peak) << is.peak << " " << should.peak;
    }
    EXPECT_GE(found.allocated.current, found.requested.current);
    EXPECT_GE(found.allocated.peak, found.requested.peak);
    EXPECT_LE(found.allocated.peak, found.active.peak);
    EXPECT_EQ(found.allocated.added - found.allocated.removed, found.allocated.current);
  }

  // Checks that the pieces tile the pool's memory and that those in use are the model's blocks. No two
  // adjacent free or vacant pieces may be mergeable.
  void check_pieces(const std::vector<PoolPiece>& pieces, const StreamPoolStatistics& now) const {
    std::map<PoolPiece::State, std::uint64_t> bytes;
    std::size_t in_use = 0;
    const PoolPiece* before = nullptr;
    for (const PoolPiece& piece : pieces) {
      if (before != nullptr) {
        ASSERT_EQ(before->range.end(), piece.range.begin);
        const bool mergeable =
            piece.state == PoolPiece::State::kFree || piece.state == PoolPiece::State::kVacant;
        ASSERT_FALSE(mergeable && before->state == piece.state && before->kind == piece.kind) << "not merged";
      }
      before = &piece;
      bytes[piece.state] += piece.range.bytes;
      if (piece.state == PoolPiece::State::kInUse) {
        ++in_use;
        const auto found = live_.find(piece.range.begin);
        ASSERT_NE(found, live_.end());
        ASSERT_EQ(found->second.bytes, piece.requested_bytes);
        ASSERT_EQ(found->second.kind, piece.kind);
      }
    }
    EXPECT_EQ(in_use, live_.size());
    EXPECT_EQ(now.all.allocated.current, bytes[PoolPiece::State::kInUse]);
    EXPECT_EQ(now.all.active.current, bytes[PoolPiece::State::kInUse] + bytes[PoolPiece::State::kCached]);
    EXPECT_EQ(now.all.reserved.current, now.all.active.current + bytes[PoolPiece::State::kFree]);
  }

  const StreamPool& pool_;
  const std::uint64_t small_bytes_;
  const bool touches_;
  std::map<std::uint64_t, ModelBlock> live_;
  std::uint64_t patterns_ = 0;
  PoolFigures of_all_;
  std::array<PoolFigures, kBlockKinds> of_kinds_;
};

}  // namespace vdnn
