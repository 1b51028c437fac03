// Files of engine timings (src/ops/cuda/engine_timings.cpp).

#include <limits>

#include "fuzz/target.h"
#include "src/ops/cuda/engine_timings.h"
#include "vdnn/error.h"

namespace vdnn::fuzz {

namespace {

using cuda::EngineTimings;

const cuda::TrialPlace kPlace{.gpu = "GPU", .driver = "13.0", .cudnn = "9.19.0", .cudnn_frontend = "1.23.0"};

}  // namespace

bool run_engine_timings(Input input) {
  const auto timings = attempt<DataError>([&] { return EngineTimings(to_text(input)); });
  if (!timings) {
    return false;
  }
  const std::string text = timings->text();
  const EngineTimings again(text);
  require(again.text() == text, "rewritten timings have the same text");
  const cuda::EngineTrial* const trial = timings->find(kPlace, "question", "engine");
  const cuda::EngineTrial* const same = again.find(kPlace, "question", "engine");
  require((trial == nullptr) == (same == nullptr), "rewritten timings contain the same trials");
  require(trial == nullptr || *trial == *same, "rewritten trials are equal");
  require(trial == nullptr || trial->seconds.value_or(0) >= 0, "times are not negative");
  return true;
}

std::vector<Seed> engine_timings_seeds() {
  EngineTimings timings;
  timings.record(kPlace, "question", "engine",
                 {.worst_error = 1e-6, .tolerance = 1e-4, .seconds = 0.1, .untimed_within_seconds_tf32 = 5});
  timings.record(kPlace, "question", "wrong",
                 {.worst_error = std::numeric_limits<double>::infinity(), .tolerance = 1e-4});
  timings.record({}, "another question", "untimed", {.worst_error = 0, .tolerance = 0});
  timings.record(kPlace, "question", "late",
                 {.worst_error = 0, .tolerance = 1, .untimed_within_seconds = 60});
  return {{.name = "four", .bytes = to_bytes(timings.text())},
          {.name = "none", .bytes = to_bytes(EngineTimings().text())}};
}

}  // namespace vdnn::fuzz
