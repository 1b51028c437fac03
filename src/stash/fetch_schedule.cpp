#include "src/stash/fetch_schedule.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace vdnn::stash {

namespace {

class Scheduler {
 public:
  Scheduler(const StepRecord& step, std::span<const Absence> leaving, std::uint64_t ahead_bytes,
            std::uint64_t budget_bytes)
      : ahead_bytes_(ahead_bytes),
        budget_bytes_(budget_bytes == 0 ? std::numeric_limits<std::uint64_t>::max() : budget_bytes),
        absences_(step.tensors.size()),
        previous_reads_(step.tensors.size()),
        ahead_(step.events.size(), 0) {
    for (const StepEvent& event : step.events) {
      in_use_.push_back(event.in_use_bytes);
    }
    for (const Absence& absence : leaving) {
      absences_[absence.tensor] = absence;
      for (std::size_t event = absence.begin; event < absence.end; ++event) {
        // A tensor that was let go of between two events may be missing in the figure of the second.
        in_use_[event] -= std::min(in_use_[event], absence.bytes);
      }
    }
  }

  FetchSchedule run(const StepRecord& step) {
    FetchSchedule schedule;
    for (std::size_t event = 0; event < step.events.size(); ++event) {
      if (step.events[event].kind == StepEvent::Kind::kRead) {
        schedule.reads.push_back(next(step.events[event].tensor, event));
      }
    }
    for (std::size_t event = 0; event < in_use_.size(); ++event) {
      schedule.peak_bytes = std::max(schedule.peak_bytes, in_use_[event]);
    }
    return schedule;
  }

 private:
  struct PreviousReads {
    std::uint32_t count = 0;
    std::size_t after_last = 0;  // reads of the step
  };

  ScheduledRead next(std::uint32_t tensor, std::size_t event) {
    PreviousReads& previous = previous_reads_[tensor];
    const std::size_t own = read_events_.size();
    ScheduledRead read{.tensor = tensor, .earlier = previous.count};
    if (const std::optional<Absence>& absence = absences_[tensor]) {
      if (previous.count == 0) {
        read.fetch_after = fetch_ahead(*absence);
      } else {
        // It is back, or comes back for another pass: what is in use includes it from its last read on.
        read.fetch_after = std::max(fetched_after_, previous.after_last);
      }
      fetched_after_ = read.fetch_after;
    }
    read_events_.push_back(event);
    previous = {.count = previous.count + 1, .after_last = own + 1};
    return read;
  }

  // For the first read of a tensor, which follows all reads so far. Counts what its fetch takes.
  std::size_t fetch_ahead(const Absence& absence) {
    const std::size_t late = read_events_.size() + 1;
    std::size_t earliest = late;
    std::size_t checked = absence.end;  // from this event on it fits into the budget
    for (std::size_t after = read_events_.size(); after > 0 && after >= fetched_after_; --after) {
      const std::size_t begin = read_events_[after - 1] + 1;
      while (checked > begin && fits_budget(checked - 1, absence.bytes)) {
        --checked;
      }
      if (checked > begin || begin <= absence.begin || !fits_window(begin, absence.bytes)) {
        break;
      }
      earliest = after;
    }
    if (earliest != late) {
      take(read_events_[earliest - 1] + 1, absence);
    }
    return earliest;
  }

  bool fits_budget(std::size_t event, std::uint64_t bytes) const {
    return in_use_[event] <= budget_bytes_ && bytes <= budget_bytes_ - in_use_[event];
  }
  bool fits_window(std::size_t event, std::uint64_t bytes) const {
    const std::uint64_t ahead = event < ahead_.size() ? ahead_[event] : 0;
    return ahead == 0 || ahead + bytes <= ahead_bytes_;
  }
  // It is ahead of its read up to the event of that read, where it no longer counts as away.
  void take(std::size_t begin, const Absence& absence) {
    for (std::size_t event = begin; event < absence.end; ++event) {
      in_use_[event] += absence.bytes;
    }
    for (std::size_t event = begin; event <= absence.end && event < ahead_.size(); ++event) {
      ahead_[event] += absence.bytes;
    }
  }

  const std::uint64_t ahead_bytes_;
  const std::uint64_t budget_bytes_;
  std::vector<std::optional<Absence>> absences_;  // by tensor
  std::vector<PreviousReads> previous_reads_;     // by tensor
  std::vector<std::uint64_t> in_use_;             // by event
  std::vector<std::uint64_t> ahead_;              // by event: fetched and not yet read
  std::vector<std::size_t> read_events_;          // of the reads so far
  std::size_t fetched_after_ = 0;                 // reads; no later fetch starts earlier
};

}  // namespace

FetchSchedule schedule_fetches(const StepRecord& step, std::span<const Absence> leaving,
                               std::uint64_t ahead_bytes, std::uint64_t budget_bytes) {
  return Scheduler(step, leaving, ahead_bytes, budget_bytes).run(step);
}

}  // namespace vdnn::stash
