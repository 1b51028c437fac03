// Learned steps, which vdnn.torch.export() writes: their reader (src/plan/learned_step_file.cpp) and their
// tapes.

#include <algorithm>

#include "fuzz/target.h"
#include "vdnn/error.h"
#include "vdnn/learned_step.h"

namespace vdnn::fuzz {

namespace {

// A tape has one op per event, and each op reads all tensors held at its event. The cost is quadratic, so
// inputs with many events test only the reader.
constexpr std::size_t kMostEvents = 200;

void try_tape(const LearnedStep& step, std::int64_t batch) {
  const auto tape = attempt<InvalidArgument>([&] { return to_tape(step, batch); });
  if (!tape) {
    require(batch != batch_of(step), "an accepted step has a tape");
    return;
  }
  require((*tape)->ops().size() == step.events.size() + 1, "a tape has one op per stretch");
  require(std::ranges::all_of((*tape)->ops(), [](const Op& op) { return op.cost.seconds > 0; }),
          "a recorded time counts as measured");
}

}  // namespace

bool run_learned_step(Input input) {
  const auto step = attempt<DataError>([&] { return parse_learned_step(to_text(input)); });
  if (!step) {
    return false;
  }
  require(parse_learned_step(to_text(*step)) == *step, "a rewritten step is equal");
  if (step->events.size() <= kMostEvents) {
    try_tape(*step, batch_of(*step));
    try_tape(*step, 3);
  }
  return true;
}

std::vector<Seed> learned_step_seeds() {
  LearnedStep step{.program = "train.py",
                   .framework = "PyTorch 2.15.0",
                   .device = "cpu",
                   .batch = 8,
                   .events = {{.bytes = 8192, .held_until = 2, .seconds = 0.01, .in_use_bytes = 12288},
                              {.tensor = 1, .bytes = 4096, .seconds = 0.02, .in_use_bytes = 16384},
                              {.kind = StepEvent::Kind::kRead,
                               .tensor = 1,
                               .seconds = 0.03,
                               .in_use_bytes = 16384,
                               .peak_bytes = 20480},
                              {.kind = StepEvent::Kind::kRead, .seconds = 0.05, .in_use_bytes = 8192}},
                   .seconds = 0.06,
                   .peak_bytes = 20480};
  const Seed whole{.name = "two-tensors", .bytes = to_bytes(to_text(step))};
  step.batch.reset();
  step.events.resize(1);
  step.events.front().held_until.reset();
  return {whole, {.name = "never-read", .bytes = to_bytes(to_text(step))}};
}

}  // namespace vdnn::fuzz
