#pragma once
// The memory that each allocator reserves for a log: the columns of bench/allocator_replay and of the table
// in docs/allocator.md.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/replay.h"
#include "bench/replayed_allocator.h"
#include "vdnn/allocation_log.h"

namespace vdnn::bench {

struct Contestant {
  const char* name;
  std::unique_ptr<ReplayedAllocator> (*make)();
};
std::span<const Contestant> contestants();

struct Outcome {
  Replay replay;
  double reserved_over_live = 0;
};

struct Comparison {
  std::string log;
  std::uint64_t live_bytes = 0;   // peak
  std::vector<Outcome> outcomes;  // in the order of contestants()
};
// Replays the log on all contestants, its step `steps` times. Throws what peak_live_bytes() throws.
Comparison compare(std::string name, const AllocationLog& log, std::size_t steps);

// The first two lines of a Markdown table, and one row for a comparison. Both end without a newline.
std::string markdown_header();
std::string markdown_row(const Comparison& comparison);

}  // namespace vdnn::bench
