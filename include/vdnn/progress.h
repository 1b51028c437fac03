#pragma once
// The progress of training, for people: on a terminal a bar that is redrawn in place; elsewhere, for example
// in a log file, a line from time to time. The end of an epoch always has a line of its own.

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
  std::optional<double> stall_fraction;  // part of the step in which the compute stream waits for a copy;
                                         // none: not shown
  std::optional<double> loss_scale;      // none: not shown
  std::uint64_t skipped_steps = 0;       // steps whose gradients have overflowed; shown with the scale
};

struct ProgressOptions {
  bool terminal = false;  // whether the stream is one (as isatty reports)
  // If the stream is no terminal: seconds from one line to the next, >= 0. 0: only the ends of epochs have
  // lines.
  double seconds_between_lines = 30;
  std::function<double()> now_seconds = {};  // a monotonic clock; empty: the system's
};

// Belongs to one thread. The stream must outlive it, and is flushed after each text.
//
// The ETA assumes that the steps left take as long as those since the first update, including evaluations and
// checkpoints between them. It is shown from the second update on.
class ProgressBar {
 public:
  // Throws InvalidArgument for `seconds_between_lines` below 0.
  ProgressBar(std::ostream& out, const ProgressOptions& options);

  // Reports a completed step. Draws on a terminal at most ten times a second.
  void update(const TrainingProgress& progress);
  // Call when training is over, or before other text is printed: writes the line of the steps since the last
  // line.
  void finish();

 private:
  std::optional<double> seconds_left() const;
  void draw(bool last);

  std::ostream& out_;
  bool terminal_;
  double seconds_between_draws_;
  std::function<double()> now_seconds_;
  TrainingProgress progress_;
  bool line_open_ = false;  // there were updates since the last permanent line
  double next_draw_seconds_;
  std::uint64_t updates_ = 0;
  double first_update_seconds_ = 0;
  double last_update_seconds_ = 0;
};

}  // namespace vdnn
