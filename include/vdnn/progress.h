#pragma once
// How training is going, for people: a bar that is redrawn in place on a terminal; elsewhere, for example in
// a log file, a line from time to time. The end of an epoch always is a line of its own.

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>

namespace vdnn {

struct TrainingProgress {
  std::uint64_t epoch = 0;  // from 1
  std::uint64_t epochs = 0;
  std::uint64_t step = 0;        // of this epoch, completed
  std::uint64_t steps = 0;       // in this epoch
  std::uint64_t steps_left = 0;  // of the whole training
  double loss = 0;
  double images_per_second = 0;
  std::uint64_t memory_bytes = 0;  // of the device, in use
  std::uint64_t budget_bytes = 0;
  std::optional<double> stall_fraction;  // of the step, compute stream idle for a transfer; none: not shown
  std::optional<double> loss_scale;      // none: not shown
  std::uint64_t skipped_steps = 0;       // whose gradients have overflowed; shown with the scale
};

struct ProgressOptions {
  bool terminal = false;  // the stream is one (what isatty says)
  // Elsewhere: seconds from one line to the next, >= 0. 0: the ends of epochs alone have lines.
  double seconds_between_lines = 30;
  std::function<double()> now_seconds = {};  // a monotonic clock; empty: the system's
};

// Belongs to one thread. The stream must outlive it; what is written is flushed at once.
//
// The ETA is the time that the steps left will take if they take as long as those since the first update,
// with what came between them (evaluation, checkpoints). It is shown from the second update on.
class ProgressBar {
 public:
  // Throws InvalidArgument for `seconds_between_lines` below 0.
  ProgressBar(std::ostream& out, const ProgressOptions& options);

  // A step has been completed. A terminal is drawn on at most ten times a second.
  void update(const TrainingProgress& progress);
  // Training is over, or something else is to be printed: steps since the last line get theirs.
  void finish();

 private:
  std::optional<double> seconds_left() const;
  void draw(bool last);

  std::ostream& out_;
  bool terminal_;
  double seconds_between_draws_;
  std::function<double()> now_seconds_;
  TrainingProgress progress_;
  bool line_open_ = false;  // updates since the last line that stays
  double next_draw_seconds_;
  std::uint64_t updates_ = 0;
  double first_update_seconds_ = 0;
  double last_update_seconds_ = 0;
};

}  // namespace vdnn
