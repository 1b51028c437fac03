#include "src/report/step_time.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "vdnn/error.h"

namespace vdnn {

namespace {

const TracedStep& traced(const Prediction& prediction) {
  if (!prediction.step) {
    throw InvalidArgument("the prediction has no trace, so the times of its instructions are unknown");
  }
  return *prediction.step;
}

bool is_copy(InstructionKind kind) {
  return kind == InstructionKind::kLoad || kind == InstructionKind::kOffload ||
         kind == InstructionKind::kPrefetch || kind == InstructionKind::kReadResult;
}

// Whether the compute stream may wait for the instruction: a copy, or a reduction over ranks.
bool is_awaited(const Instruction& instruction) {
  return is_copy(instruction.kind) || instruction.stream == StreamRole::kReduce;
}

bool computes(const Instruction& instruction) {
  return is_launch(instruction.kind) && instruction.stream == StreamRole::kCompute;
}

class Accounts {
 public:
  Accounts(const Schedule& schedule, const Prediction& prediction)
      : schedule_(schedule), step_(traced(prediction)) {
    time_.step_seconds = prediction.step_seconds;
  }

  StepTime settle() {
    // Steps follow each other: the first launch comes after the last one of the previous step.
    double ready = last_end() - time_.step_seconds;
    for (std::uint32_t index = 0; index < schedule_.instructions.size(); ++index) {
      if (computes(schedule_.instructions[index])) {
        const InstructionKind kind = schedule_.instructions[index].kind;
        const InstructionTime& run = step_.times[index];
        (kind == InstructionKind::kLaunch ? time_.compute_seconds : time_.recompute_seconds) +=
            run.end_seconds - run.begin_seconds;
        note_stall(index, ready);
        ready = run.end_seconds;
      }
    }
    std::ranges::stable_sort(time_.stalls, std::ranges::greater{}, &StalledLaunch::seconds);
    return time_;
  }

 private:
  // Sums of times in different orders may differ in their last digits.
  double rounding() const { return 1e-9 * time_.step_seconds; }

  double last_end() const {
    double end = 0;
    for (std::uint32_t index = 0; index < schedule_.instructions.size(); ++index) {
      if (computes(schedule_.instructions[index])) {
        end = step_.times[index].end_seconds;
      }
    }
    return end;
  }

  void note_stall(std::uint32_t launch, double ready) {
    const double begin = step_.times[launch].begin_seconds;
    if (begin - ready <= rounding()) {
      return;
    }
    StalledLaunch stall{.launch = launch, .begin_seconds = ready, .seconds = begin - ready};
    find_transfer(stall, begin);
    time_.stall_seconds += stall.seconds;
    time_.stalls.push_back(stall);
  }

  // Prefers a transfer for which the schedule makes the launch wait. Otherwise any transfer that ends when
  // the launch begins counts, for example one whose memory the launch reuses.
  void find_transfer(StalledLaunch& stall, double begin) const {
    for (const Wait& wait : schedule_.instructions[stall.launch].waits) {
      if (ends_at(wait.instruction, begin + wait.steps_ago * time_.step_seconds)) {
        stall.transfer = wait.instruction;
        stall.of_the_step_before = wait.steps_ago > 0;
        return;
      }
    }
    for (std::uint32_t index = 0; index < schedule_.instructions.size(); ++index) {
      const bool now = ends_at(index, begin);
      if (now || ends_at(index, begin + time_.step_seconds)) {
        stall.transfer = index;
        stall.of_the_step_before = !now;
        return;
      }
    }
  }
  bool ends_at(std::uint32_t index, double seconds) const {
    return is_awaited(schedule_.instructions[index]) &&
           std::abs(step_.times[index].end_seconds - seconds) <= rounding();
  }

  const Schedule& schedule_;
  const TracedStep& step_;
  StepTime time_;
};

}  // namespace

StepTime step_time(const Schedule& schedule, const Prediction& prediction) {
  return Accounts(schedule, prediction).settle();
}

double hidden_share(const StepTime& time, const Prediction& prediction,
                    std::span<const std::uint32_t> copies) {
  const TracedStep& step = traced(prediction);
  double copied = 0;
  double exposed = 0;
  for (const std::uint32_t copy : copies) {
    const double seconds = step.times[copy].end_seconds - step.times[copy].begin_seconds;
    copied += seconds;
    for (const StalledLaunch& stall : time.stalls) {
      if (stall.transfer == copy) {
        exposed += std::min(stall.seconds, seconds);  // the stall and the copy end together
      }
    }
  }
  return copied > 0 ? std::max(0.0, 1 - exposed / copied) : 1;
}

CopyTime copy_time(const StepTime& time, const Prediction& prediction, std::uint32_t copy) {
  const TracedStep& step = traced(prediction);
  const InstructionTime& run = step.times[copy];
  return {.begin_seconds = run.begin_seconds - step.begin_seconds,
          .seconds = run.end_seconds - run.begin_seconds,
          .hidden_share = hidden_share(time, prediction, std::span(&copy, 1))};
}

}  // namespace vdnn
