#include "bench/replay.h"

#include <algorithm>
#include <chrono>
#include <span>

namespace vdnn::bench {

namespace {

void ask(ReplayedAllocator& allocator, const AllocationEvent& event) {
  switch (event.kind) {
    case AllocationEvent::Kind::kAllocate:
      allocator.allocate(event.block, event.bytes, event.stream, event.lasting);
      return;
    case AllocationEvent::Kind::kUse:
      allocator.use(event.block, event.stream);
      return;
    case AllocationEvent::Kind::kFree:
      allocator.free(event.block, event.stream);
      return;
  }
}

void run(std::span<const AllocationEvent> events, ReplayedAllocator& allocator, Replay& replay) {
  for (const AllocationEvent& event : events) {
    ask(allocator, event);
    replay.peak_reserved_bytes = std::max(replay.peak_reserved_bytes, allocator.reserved_bytes());
  }
  replay.calls += events.size();
}

}  // namespace

Replay replay(const AllocationLog& log, std::size_t steps, ReplayedAllocator& allocator) {
  using Clock = std::chrono::steady_clock;
  const std::span<const AllocationEvent> events = log.events;
  Replay replay;
  const Clock::time_point begin = Clock::now();
  run(events.first(log.step_begin), allocator, replay);
  for (std::size_t step = 0; step < steps; ++step) {
    run(events.subspan(log.step_begin), allocator, replay);
  }
  replay.waits = allocator.waits();
  replay.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return replay;
}

}  // namespace vdnn::bench
