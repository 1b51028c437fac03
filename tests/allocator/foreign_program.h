#pragma once
// Programs with several streams for the tests of order on `sim`. They allocate from a stream pool, which does
// not see the work of the streams. They use the memory in every way that the pool's contract allows.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "vdnn/device.h"
#include "vdnn/stream_pool.h"

namespace vdnn {

// Returns a number below `bound`, drawn at random or read from input.
using Choice = std::function<std::uint64_t(std::uint64_t bound)>;

// Budgets that suffice or that force the pool to move memory, with and without caches and a high-water mark.
inline StreamPoolOptions foreign_options(const Choice& choice) {
  constexpr std::uint64_t kKiB = 1024;
  return {.budget_bytes = choice(2) == 0 ? 16384 * kKiB : 384 * kKiB,
          .high_water_bytes = choice(4) == 0 ? 192 * kKiB : 0,
          .small_bytes = 8 * kKiB,
          .cache_bytes = choice(4) == 0 ? 0 : 16 * kKiB,
          .ends_are_told = choice(2) == 0};
}

// Ends the stream for the program and the pool. The device's stream goes on, and its later work is that of
// another stream for the program and the pool.
using EndStream = std::function<void(StreamId stream)>;

class ForeignProgram {
 public:
  // Runs on streams 0 to `streams` - 1 of the device, whose memory `backend` provides to the pool. `choice`
  // outlives the program. If `end_stream` is empty, the end of a stream is only reported to the pool.
  ForeignProgram(Device& device, const DevicePoolBackend& backend, StreamPool& pool, StreamId streams,
                 const Choice& choice, EndStream end_stream = {}, std::uint64_t percent_ends = 3)
      : device_(device),
        backend_(backend),
        pool_(pool),
        streams_(streams),
        choice_(choice),
        end_stream_(std::move(end_stream)),
        percent_ends_(percent_ends) {
    if (!end_stream_) {
      end_stream_ = [this](StreamId stream) { pool_.forget(stream_handle(stream)); };
    }
  }

  std::uint64_t allocations() const { return allocations_; }

  void step() {
    const auto what = below(100);
    if (live_.empty() || what < 45) {
      allocate();
    } else if (what < 60) {
      use_elsewhere(live_[below(live_.size())]);
    } else if (what < 60 + percent_ends_) {
      end_stream(any_stream());
    } else if (what < 61 + percent_ends_) {
      pool_.trim(128 << 10);
    } else {
      free_any();
    }
  }
  // Frees all blocks and trims the pool.
  void finish() {
    while (!live_.empty()) {
      free_any();
    }
    pool_.trim();
  }

 private:
  struct Block {
    std::uint64_t address = 0;
    std::vector<Access> accesses;   // to the memory of the device
    std::optional<StreamId> owner;  // none: the stream has ended, or there was none
    bool of_host = false;           // from allocate_ready()
    Frontier written;
    Frontier uses;    // all uses
    Frontier hidden;  // uses that the pool has not been told of
  };

  std::uint64_t below(std::uint64_t bound) { return choice_(bound); }
  StreamId any_stream() { return static_cast<StreamId>(below(streams_)); }

  void allocate() {
    ++allocations_;
    const std::uint64_t bytes = 1 + below(std::uint64_t{1} << (1 + below(18)));
    const BlockLife life = below(16) == 0 ? BlockLife::kPersistent : BlockLife::kTransient;
    const StreamId stream = any_stream();
    const bool ready = below(10) == 0;
    const auto range =
        ready ? pool_.allocate_ready(bytes, life) : pool_.allocate(bytes, stream_handle(stream), life);
    if (!range) {
      if (!live_.empty()) {
        free_any();
      }
      return;
    }
    Block block;
    block.address = range->begin;
    ++version_;
    for (const AddressRange& part : backend_.device_ranges(*range)) {
      block.accesses.push_back({.range = part, .version = version_});
    }
    block.of_host = ready;
    if (!ready) {
      block.owner = stream;
    }
    // Some blocks are never used by the stream that allocates them.
    if (below(8) != 0) {
      const Frontier end(device_.submit(
          stream, {.name = "write", .reads = {}, .writes = block.accesses, .cost = {}, .run = {}}));
      block.written = device_.frontier(stream);
      block.uses = end;
      block.hidden = ready ? end : Frontier();
    }
    live_.push_back(block);
  }

  void end_stream(StreamId stream) {
    end_stream_(stream);
    for (Block& block : live_) {
      if (block.owner == stream) {
        block.owner.reset();
      }
    }
  }

  void use_elsewhere(Block& block) {
    const StreamId stream = any_stream();
    if (block.written.empty()) {
      return;
    }
    device_.wait(stream, block.written);
    const Frontier end(device_.submit(
        stream, {.name = "read", .reads = block.accesses, .writes = {}, .cost = {}, .run = {}}));
    block.uses.join(end);
    if (below(2) == 0) {
      pool_.used_on(block.address, stream_handle(stream));
    } else if (block.owner != stream) {
      block.hidden.join(end);
    }
  }

  void free_any() {
    std::swap(live_[below(live_.size())], live_.back());
    const Block block = live_.back();
    live_.pop_back();
    const std::uint64_t address = block.address;
    const auto way = below(8);
    if (way == 0) {
      device_.synchronize(block.uses);
      pool_.free_idle(address);
    } else if (way < 3 || (!block.owner && !block.hidden.empty()) || block.of_host) {
      const StreamId stream = any_stream();
      device_.wait(stream, block.uses);
      pool_.free(address, stream_handle(stream));
    } else {
      if (block.owner) {
        device_.wait(*block.owner, block.hidden);
      }
      pool_.free(address);
    }
  }

  Device& device_;
  const DevicePoolBackend& backend_;
  StreamPool& pool_;
  const StreamId streams_;
  const Choice& choice_;
  EndStream end_stream_;
  const std::uint64_t percent_ends_;
  std::uint64_t allocations_ = 0;
  std::uint64_t version_ = 0;
  std::vector<Block> live_;
};

}  // namespace vdnn
