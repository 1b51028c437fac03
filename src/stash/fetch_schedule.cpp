#include "src/stash/fetch_schedule.h"

#include <algorithm>

#include "src/stash/range_max.h"

namespace vdnn::stash {

namespace {

// More than any machine has, and small enough that sums stay within 63 bits.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 60;

std::int64_t signed_bytes(std::uint64_t bytes) {
  return static_cast<std::int64_t>(std::min(bytes, kMostBytes));
}

// Bytes in use by event, without the tensors that are away. If a tensor was released between two events, the
// bytes in use at the second event may already omit it, so that it is subtracted twice. Differences below 0
// become 0.
std::vector<std::int64_t> in_use_without(const StepRecord& step, std::span<const Absence> leaving) {
  std::vector<std::int64_t> changes(step.events.size() + 1, 0);
  for (const Absence& absence : leaving) {
    for (const Stretch& stretch : absence.stretches) {
      changes[stretch.begin] += signed_bytes(absence.bytes);
      changes[stretch.end] -= signed_bytes(absence.bytes);
    }
  }
  std::vector<std::int64_t> in_use;
  std::int64_t away = 0;
  for (std::size_t event = 0; event < step.events.size(); ++event) {
    away += changes[event];
    in_use.push_back(std::max<std::int64_t>(signed_bytes(step.events[event].in_use_bytes) - away, 0));
  }
  return in_use;
}

class Scheduler {
 public:
  Scheduler(const StepRecord& step, std::span<const Absence> leaving, std::uint64_t ahead_bytes,
            std::uint64_t budget_bytes)
      : ahead_bytes_(ahead_bytes),
        budget_bytes_(signed_bytes(budget_bytes == 0 ? kMostBytes : budget_bytes)),
        events_(step.events.size()),
        absences_(step.tensors.size()),
        previous_reads_(step.tensors.size()),
        in_use_(in_use_without(step, leaving)),
        ahead_(std::vector<std::int64_t>(step.events.size(), 0)) {
    for (const Absence& absence : leaving) {
      absences_[absence.tensor] = &absence;
    }
  }

  FetchSchedule run(const StepRecord& step) {
    FetchSchedule schedule;
    for (std::size_t event = 0; event < step.events.size(); ++event) {
      if (step.events[event].kind == StepEvent::Kind::kRead) {
        schedule.reads.push_back(next(step.events[event].tensor, event));
      }
    }
    schedule.peak_bytes = events_ == 0 ? 0 : static_cast<std::uint64_t>(in_use_.largest());
    schedule.visits = in_use_.visits() + ahead_.visits();
    return schedule;
  }

 private:
  struct PreviousReads {
    std::uint32_t count = 0;
    std::size_t after_last = 0;  // number of the step's reads up to this tensor's latest one
    std::size_t stretches = 0;   // number of stretches of its absence up to that read
  };

  ScheduledRead next(std::uint32_t tensor, std::size_t event) {
    PreviousReads& previous = previous_reads_[tensor];
    const std::size_t own = read_events_.size();
    ScheduledRead read{.tensor = tensor, .earlier = previous.count};
    if (const Absence* const absence = absences_[tensor]) {
      if (const Stretch* const stretch = stretch_up_to(event, *absence, previous.stretches)) {
        ++previous.stretches;
        read.fetch_after = fetch_ahead(*stretch, absence->bytes);
      } else {
        // The tensor has not left yet, is back, or was released just now. So the bytes in use include it, and
        // the fetch adds no bytes.
        read.fetch_after = std::max(fetched_after_, previous.after_last);
      }
      fetched_after_ = read.fetch_after;
    }
    read_events_.push_back(event);
    ++previous.count;
    previous.after_last = own + 1;
    return read;
  }

  static const Stretch* stretch_up_to(std::size_t event, const Absence& absence, std::size_t next) {
    const bool is_up_to = next < absence.stretches.size() && absence.stretches[next].end == event;
    return is_up_to ? &absence.stretches[next] : nullptr;
  }

  // Schedules the fetch for the step's next read, which ends `away`, and counts its bytes. Returns the number
  // of reads after which the fetch starts. Binary search is valid: if a fetch that starts at a read fits, a
  // fetch that starts at a later read also fits. The later fetch covers fewer events, and after the last
  // scheduled fetch the bytes ahead only decrease.
  std::size_t fetch_ahead(const Stretch& away, std::uint64_t bytes) {
    std::size_t earliest = read_events_.size() + 1;  // the fetch is late
    std::size_t low = std::max<std::size_t>(fetched_after_, 1);
    while (low < earliest) {
      const std::size_t middle = low + (earliest - low) / 2;
      if (may_start_at(read_events_[middle - 1] + 1, away, bytes)) {
        earliest = middle;
      } else {
        low = middle + 1;
      }
    }
    if (earliest <= read_events_.size()) {
      take(read_events_[earliest - 1] + 1, away, bytes);
    }
    return earliest;
  }

  bool may_start_at(std::size_t begin, const Stretch& away, std::uint64_t bytes) const {
    const bool fits_budget =
        begin >= away.end || in_use_.largest(begin, away.end) <= budget_bytes_ - signed_bytes(bytes);
    return fits_budget && begin > away.begin && fits_window(begin, bytes);
  }
  bool fits_window(std::size_t event, std::uint64_t bytes) const {
    const std::uint64_t ahead = event < events_ ? static_cast<std::uint64_t>(ahead_.at(event)) : 0;
    return ahead == 0 || (bytes <= ahead_bytes_ && ahead <= ahead_bytes_ - bytes);
  }
  // The tensor counts as ahead up to the event of its read, and as present afterwards.
  void take(std::size_t begin, const Stretch& away, std::uint64_t bytes) {
    in_use_.add(begin, away.end, signed_bytes(bytes));
    ahead_.add(begin, std::min(away.end + 1, events_), signed_bytes(bytes));
  }

  const std::uint64_t ahead_bytes_;
  const std::int64_t budget_bytes_;
  const std::size_t events_;
  std::vector<const Absence*> absences_;       // by tensor; null: it does not leave
  std::vector<PreviousReads> previous_reads_;  // by tensor
  RangeMax in_use_;                            // by event
  RangeMax ahead_;                             // by event: bytes fetched and not yet read
  std::vector<std::size_t> read_events_;       // the events of the reads so far
  std::size_t fetched_after_ = 0;              // in reads; later fetches start no earlier
};

}  // namespace

FetchSchedule schedule_fetches(const StepRecord& step, std::span<const Absence> leaving,
                               std::uint64_t ahead_bytes, std::uint64_t budget_bytes) {
  return Scheduler(step, leaving, ahead_bytes, budget_bytes).run(step);
}

}  // namespace vdnn::stash
