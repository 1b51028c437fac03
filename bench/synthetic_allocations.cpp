#include "bench/synthetic_allocations.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "src/base/random.h"

namespace vdnn::bench {

namespace {

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20U;

// A log under construction, and its live blocks.
class Program {
 public:
  explicit Program(std::uint64_t seed) : random(seed) {}

  void allocate(std::uint64_t bytes, std::uint32_t stream) {
    log_.events.push_back({.stream = stream, .block = blocks_, .bytes = bytes});
    live_.push_back({.block = blocks_++, .bytes = bytes, .stream = stream});
    live_bytes_ += bytes;
  }
  void free_any() { free(random.below(live_.size())); }
  void free_newest() { free(live_.size() - 1); }
  // Records a use of a random block by a stream other than the block's own.
  void use_any(std::uint32_t streams) {
    const Block& block = live_[random.below(live_.size())];
    log_.events.push_back(
        {.kind = AllocationEvent::Kind::kUse, .stream = (block.stream + 1) % streams, .block = block.block});
  }

  std::size_t live() const { return live_.size(); }
  std::uint64_t live_bytes() const { return live_bytes_; }
  AllocationLog finish() {
    log_.step_begin = log_.events.size();
    return std::move(log_);
  }

  SplitMix64 random;

 private:
  struct Block {
    std::uint64_t block = 0;
    std::uint64_t bytes = 0;
    std::uint32_t stream = 0;
  };

  void free(std::size_t index) {
    std::swap(live_[index], live_.back());
    const Block freed = live_.back();
    live_.pop_back();
    live_bytes_ -= freed.bytes;
    log_.events.push_back(
        {.kind = AllocationEvent::Kind::kFree, .stream = freed.stream, .block = freed.block});
  }

  AllocationLog log_;
  std::vector<Block> live_;
  std::uint64_t blocks_ = 0;
  std::uint64_t live_bytes_ = 0;
};

// A random size. Each range from a power of two to the next is equally likely.
std::uint64_t any_size(SplitMix64& random, unsigned smallest_log, unsigned largest_log) {
  const auto log = smallest_log + static_cast<unsigned>(random.below(largest_log - smallest_log));
  return (std::uint64_t{1} << log) + random.below(std::uint64_t{1} << log);
}

// About 1 GiB in blocks of all sizes, freed in random order.
AllocationLog sizes() {
  Program program(1);
  for (int i = 0; i < 3000; ++i) {
    while (program.live_bytes() > 1024 * kMebibyte) {
      program.free_any();
    }
    program.allocate(any_size(program.random, 8, 27), 0);
  }
  return program.finish();
}

// Blocks of all sizes, as in sizes(), on four streams that use each other's blocks.
AllocationLog streams() {
  constexpr std::uint32_t kStreams = 4;
  Program program(2);
  for (int i = 0; i < 2500; ++i) {
    while (program.live_bytes() > 1024 * kMebibyte) {
      if (program.random.below(3) == 0) {
        program.use_any(kStreams);
      }
      program.free_any();
    }
    program.allocate(any_size(program.random, 12, 26),
                     static_cast<std::uint32_t>(program.random.below(kStreams)));
  }
  return program.finish();
}

// Inputs of varying length, for example text: activations build up and are freed again.
AllocationLog lengths() {
  Program program(3);
  for (int i = 0; i < 24; ++i) {
    program.allocate(12 * kMebibyte, 0);
  }
  const std::size_t weights = program.live();
  for (int step = 0; step < 30; ++step) {
    const std::uint64_t length = 64 + program.random.below(448);
    for (int layer = 0; layer < 24; ++layer) {
      program.allocate(length * 32768, 0);
      program.allocate(length * length * 64, 0);
    }
    while (program.live() > weights) {
      program.free_newest();
    }
  }
  return program.finish();
}

// Each phase allocates blocks that are larger than those of earlier phases, then frees half of all blocks.
AllocationLog phases() {
  Program program(4);
  for (std::uint64_t phase = 1; phase <= 24; ++phase) {
    for (int i = 0; i < 64; ++i) {
      program.allocate(phase * kMebibyte / 2 + 4096, 0);
    }
    for (std::size_t kept = program.live() / 2; program.live() > kept;) {
      program.free_any();
    }
  }
  return program.finish();
}

}  // namespace

void each_synthetic_log(const std::function<void(const std::string& name, const AllocationLog& log)>& take) {
  take("synthetic-sizes", sizes());
  take("synthetic-streams", streams());
  take("synthetic-lengths", lengths());
  take("synthetic-phases", phases());
}

}  // namespace vdnn::bench
