#pragma once
// Learning rates that change while training runs, as a function of the step alone. A run that resumes at step
// n has, bit for bit, the rate that the uninterrupted run had at step n.

#include <cstdint>
#include <string>
#include <string_view>

namespace vdnn {

// The run that a schedule extends over.
struct LearningRateRun {
  double base_rate = 0.01;  // finite, not negative
  // Steps of the whole training, not only of the part after resuming.
  std::uint64_t total_steps = 0;
  // Used only if the text counts in epochs; then at least 1.
  std::uint64_t steps_per_epoch = 0;
};

// Written as text:
//
//   constant                 the base rate
//   step:EVERY[:FACTOR]      times FACTOR (0 < FACTOR <= 1; 0.1) every EVERY steps
//   cosine[:FINAL_FRACTION]  half a cosine from the base rate to FINAL_FRACTION (0 to 1; 0) of it at the last
//                            step (Loshchilov and Hutter, SGDR, ICLR 2017, without restarts)
//   ...,warmup:STEPS         any of them after a linear rise from base/STEPS at step 0 to the base rate at
//                            step STEPS - 1 (Goyal et al., 2017); schedules count from the end of the rise
//
// EVERY and STEPS, at least 1, are steps (`500`) or epochs (`30e`). A warm-up that is longer than the run
// never ends. Immutable; may be shared by threads.
class LearningRateSchedule {
 public:
  // Throws InvalidArgument for a text of another form; the message shows the forms. Also throws it for a base
  // rate that is negative or not finite, for epochs if steps_per_epoch is 0, and if steps overflow 64 bits.
  LearningRateSchedule(std::string_view text, const LearningRateRun& run);

  // The rate of step `step`, counted from 0; computed in fp64 and rounded once. After the last step of the
  // run the cosine keeps its value.
  float rate(std::uint64_t step) const;

 private:
  enum class Shape : std::uint8_t { kConstant, kStep, kCosine };

  void set_shape(std::string_view text, std::uint64_t steps_per_epoch);
  void set_base_rate(double rate);
  double cosine(std::uint64_t step) const;

  double base_rate_ = 0;
  std::uint64_t total_steps_ = 0;
  std::uint64_t warmup_steps_ = 0;
  Shape shape_ = Shape::kConstant;
  std::uint64_t every_ = 0;  // steps of kStep
  double fraction_ = 0;      // kStep's factor, kCosine's final fraction
};

}  // namespace vdnn
