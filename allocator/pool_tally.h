#pragma once
// Figures of a pool, counted by threads on several streams without contention. Each stream counts for itself,
// under its own lock.
//
// *Leases* bound the peak of the sum. settle() sets a stream's lease to the amount that the stream has in
// use. Afterwards, the lease is the most that the stream has had in use since then. Only when a stream
// exceeds its lease does it update the sum of leases, the only figure that streams share. The reported peak
// is that of the sum of leases. It is never too low. If only one stream is used, it is exact, since a lease
// never rises above what the stream has in use at that time.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "vdnn/stream_pool.h"

namespace vdnn {

inline void add(PoolFigure& figure, std::uint64_t amount) {
  figure.current += amount;
  figure.added += amount;
  figure.peak = std::max(figure.peak, figure.current);
}
inline void remove(PoolFigure& figure, std::uint64_t amount) {
  figure.current -= amount;
  figure.removed += amount;
}

// Thread-safe.
class SumOfLeases {
 public:
  void raise(std::uint64_t amount) {
    const std::uint64_t now = leased_.fetch_add(amount, std::memory_order_relaxed) + amount;
    std::uint64_t peak = peak_.load(std::memory_order_relaxed);
    while (peak < now && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  void lower(std::uint64_t amount) { leased_.fetch_sub(amount, std::memory_order_relaxed); }
  std::uint64_t peak() const { return peak_.load(std::memory_order_relaxed); }
  void reset_peak() { peak_.store(leased_.load(std::memory_order_relaxed), std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> leased_{0};
  std::atomic<std::uint64_t> peak_{0};
};

// One stream's part of a figure. The stream's lock guards it.
class LeasedFigure {
 public:
  const PoolFigure& figure() const { return figure_; }

  void add(std::uint64_t amount, SumOfLeases& sum) {
    figure_.current += amount;
    figure_.added += amount;
    if (figure_.current > lease_) {
      sum.raise(figure_.current - lease_);
      lease_ = figure_.current;
      figure_.peak = std::max(figure_.peak, lease_);
    }
  }
  void remove(std::uint64_t amount) { vdnn::remove(figure_, amount); }
  void settle(SumOfLeases& sum) {
    sum.lower(lease_ - figure_.current);
    lease_ = figure_.current;
  }
  void reset_peak() { figure_.peak = figure_.current; }
  // Adds the totals of a figure whose current value is 0.
  void absorb(const LeasedFigure& other) {
    figure_.added += other.figure_.added;
    figure_.removed += other.figure_.removed;
  }

 private:
  PoolFigure figure_;
  std::uint64_t lease_ = 0;
};

// Three figures of the blocks that are handed out, of one kind or of all.
template <class Figure>
struct BlockFigures {
  Figure blocks;
  Figure requested;
  Figure allocated;
};
using PoolPeaks = std::array<BlockFigures<SumOfLeases>, kBlockKinds + 1>;  // the last: of all kinds

// The figures of one stream. The stream's lock guards them.
class StreamTally {
 public:
  using Figures = BlockFigures<LeasedFigure>;

  void add(BlockKind kind, std::uint64_t requested, std::uint64_t allocated, PoolPeaks& peaks) {
    for (const std::size_t each : {static_cast<std::size_t>(kind), kBlockKinds}) {
      figures_[each].blocks.add(1, peaks[each].blocks);
      figures_[each].requested.add(requested, peaks[each].requested);
      figures_[each].allocated.add(allocated, peaks[each].allocated);
    }
  }
  void remove(BlockKind kind, std::uint64_t requested, std::uint64_t allocated) {
    for (const std::size_t each : {static_cast<std::size_t>(kind), kBlockKinds}) {
      figures_[each].blocks.remove(1);
      figures_[each].requested.remove(requested);
      figures_[each].allocated.remove(allocated);
    }
  }
  void settle(PoolPeaks& peaks) {
    for (std::size_t each = 0; each < figures_.size(); ++each) {
      figures_[each].blocks.settle(peaks[each].blocks);
      figures_[each].requested.settle(peaks[each].requested);
      figures_[each].allocated.settle(peaks[each].allocated);
    }
  }
  void reset_peaks() {
    for (Figures& each : figures_) {
      each.blocks.reset_peak();
      each.requested.reset_peak();
      each.allocated.reset_peak();
    }
  }
  void absorb(const StreamTally& other) {
    for (std::size_t each = 0; each < figures_.size(); ++each) {
      figures_[each].blocks.absorb(other.figures_[each].blocks);
      figures_[each].requested.absorb(other.figures_[each].requested);
      figures_[each].allocated.absorb(other.figures_[each].allocated);
    }
  }
  // The figures of one kind or, for kBlockKinds, of all kinds.
  const Figures& of(std::size_t kind) const { return figures_[kind]; }
  bool empty() const { return figures_[kBlockKinds].blocks.figure().current == 0; }

 private:
  std::array<Figures, kBlockKinds + 1> figures_;
};

}  // namespace vdnn
