#pragma once
// Hand-made and random learned steps, for tests of their readers and planners.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "src/base/random.h"
#include "vdnn/learned_step.h"

namespace vdnn::testing {

inline constexpr std::uint64_t kStepMiB = std::uint64_t{1} << 20U;

// The step reads three tensors in reverse order, the first one twice. The program holds the first tensor up
// to the third save. 10 MiB are in use throughout. All sizes are whole granules of 2 MiB.
inline LearnedStep small_step() {
  const auto save = [](std::uint64_t mib, double seconds, std::uint64_t in_use_mib) {
    return StepEvent{.bytes = mib * kStepMiB, .seconds = seconds, .in_use_bytes = in_use_mib * kStepMiB};
  };
  const auto read = [](std::uint32_t tensor, double seconds, std::uint64_t in_use_mib) {
    return StepEvent{.kind = StepEvent::Kind::kRead,
                     .tensor = tensor,
                     .seconds = seconds,
                     .in_use_bytes = in_use_mib * kStepMiB};
  };
  LearnedStep step{.program = "small.py",
                   .framework = "PyTorch 2.15.0",
                   .device = "cpu",
                   .batch = 8,
                   .events = {save(16, 0.010, 26), save(8, 0.020, 36), save(4, 0.030, 40), read(2, 0.040, 42),
                              read(1, 0.050, 44), read(0, 0.060, 36), read(0, 0.070, 32)},
                   .seconds = 0.080,
                   .peak_bytes = 48 * kStepMiB};
  step.events[0].held_until = 2;
  for (std::uint32_t tensor = 0; tensor < 3; ++tensor) {
    step.events[tensor].tensor = tensor;
  }
  step.events[4].peak_bytes = 46 * kStepMiB;
  return step;
}

// Any step whose file is valid. The backward pass may save, too. A tensor may be read several times or never,
// or be held up to the end.
class RandomStep {
 public:
  explicit RandomStep(std::uint64_t seed) : random_(seed) {}

  LearnedStep build() && {
    draw_events();
    find_last_reads();
    draw_figures();
    return std::move(step_);
  }

 private:
  std::uint64_t bytes(std::uint64_t most_kib) { return 1 + random_.below(most_kib << 10U); }
  bool chance(std::uint64_t percent) { return random_.below(100) < percent; }

  void draw_events() {
    std::vector<std::uint32_t> unread;
    std::uint32_t tensors = 0;
    const std::uint64_t forward = 3 + random_.below(10);
    while (tensors < forward || !unread.empty()) {
      StepEvent event;
      if (tensors < forward || chance(10)) {
        event.bytes = bytes(4096);
        event.tensor = tensors++;
        if (chance(90)) {
          unread.push_back(event.tensor);
        }
      } else {
        event.kind = StepEvent::Kind::kRead;
        event.tensor = unread.back();
        if (!chance(20)) {
          unread.pop_back();
        }
      }
      step_.events.push_back(event);
    }
    for (std::size_t index = 0; index < step_.events.size(); ++index) {
      if (step_.events[index].kind == StepEvent::Kind::kSave && chance(30)) {
        step_.events[index].held_until =
            static_cast<std::uint32_t>(index + 1 + random_.below(step_.events.size() - index));
      }
    }
  }

  void find_last_reads() {
    for (std::size_t index = 0; index < step_.events.size(); ++index) {
      const StepEvent& event = step_.events[index];
      if (event.kind == StepEvent::Kind::kSave) {
        last_reads_.push_back(index);
      }
      last_reads_[event.tensor] = index;
    }
  }

  void draw_figures() {
    const std::uint64_t resident = chance(20) ? 0 : bytes(8192);
    std::vector<std::uint64_t> sizes;
    std::uint64_t saved = 0;
    double now = 0;
    for (std::size_t index = 0; index < step_.events.size(); ++index) {
      StepEvent& event = step_.events[index];
      if (event.kind == StepEvent::Kind::kSave) {
        sizes.push_back(event.bytes);
        saved += event.bytes;
      }
      now += chance(20) ? 0 : static_cast<double>(bytes(1)) * 1e-6;
      event.seconds = now;
      event.in_use_bytes = resident + saved + bytes(1024);
      if (chance(50)) {
        event.peak_bytes = event.in_use_bytes + bytes(1024);
      }
      step_.peak_bytes = std::max({step_.peak_bytes, event.in_use_bytes, event.peak_bytes.value_or(0)});
      if (last_reads_[event.tensor] == index) {
        saved -= sizes[event.tensor];
      }
    }
    // More than any stretch has in use for two successive tensors.
    step_.peak_bytes += 4096 << 10U;
    step_.seconds = now + 1e-3;
    step_.program = "random.py";
    step_.framework = "PyTorch";
    step_.device = "cpu";
    step_.batch = static_cast<std::int64_t>(1 + random_.below(64));
  }

  SplitMix64 random_;
  LearnedStep step_;
  std::vector<std::size_t> last_reads_;
};

// The bytes at the op with the most live bytes.
inline std::uint64_t peak_of(const Tape& tape) {
  std::uint64_t peak = 0;
  for (OpId op = 0; op < tape.ops().size(); ++op) {
    std::uint64_t bytes = tape.op(op).algorithms.front().workspace_bytes;
    for (ValueId value = 0; value < tape.values().size(); ++value) {
      bytes += tape.producer(value) <= op && op <= tape.last_use(value) ? tape.value(value).bytes : 0;
    }
    peak = std::max(peak, bytes);
  }
  return peak;
}

}  // namespace vdnn::testing
