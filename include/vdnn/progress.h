#pragma once
// How training is going, for people: a bar that is redrawn in place on a terminal, one line an epoch
// elsewhere.

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>

namespace vdnn {

struct TrainingProgress {
  std::uint64_t epoch = 0;  // from 1
  std::uint64_t epochs = 0;
  std::uint64_t step = 0;   // of this epoch, completed
  std::uint64_t steps = 0;  // in an epoch
  double loss = 0;
  double images_per_second = 0;
  std::uint64_t memory_bytes = 0;  // of the device, in use
  std::uint64_t budget_bytes = 0;
  std::optional<double> stall_fraction;  // of the step, compute stream idle for a transfer; none: not shown
};

// Belongs to one thread. The stream must outlive it.
class ProgressBar {
 public:
  // `terminal`: `out` is one (what isatty says). `now_seconds` is a monotonic clock; empty: the system's.
  ProgressBar(std::ostream& out, bool terminal, std::function<double()> now_seconds = {});

  // A step has been completed. On a terminal draws, at most ten times a second; the end of an epoch is always
  // shown and stays as a line of its own.
  void update(const TrainingProgress& progress);
  // Training is over: an epoch that was left in the middle gets its line.
  void finish();

 private:
  void draw(bool last);

  std::ostream& out_;
  bool terminal_;
  std::function<double()> now_seconds_;
  TrainingProgress progress_;
  bool line_open_ = false;  // updates since the last line that stays
  double next_draw_seconds_;
};

}  // namespace vdnn
