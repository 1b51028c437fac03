#include "src/ops/cuda/engine_choice.h"

#include <algorithm>

namespace vdnn::cuda {

namespace {

// Is `engine` permitted wherever `other` is?
bool replaces(const Engine& engine, const Engine& other) {
  return engine.workspace_bytes <= other.workspace_bytes &&
         (engine.deterministic() || !other.deterministic()) &&
         (!engine.rounds_inputs() || other.rounds_inputs());
}

}  // namespace

bool Engine::has(NumericalNote note) const {
  return std::ranges::find(notes, note) != notes.end();
}

bool Engine::deterministic() const {
  return !has(NumericalNote::kNondeterministic) && !has(NumericalNote::kUnknown);
}

bool Engine::rounds_inputs() const {
  return has(NumericalNote::kTensorCore) || has(NumericalNote::kDownConvertInputs) ||
         has(NumericalNote::kUnknown);
}

bool permits(const EngineLimits& limits, const Engine& engine) {
  return engine.workspace_bytes <= limits.workspace_bytes &&
         (engine.deterministic() || !limits.deterministic) &&
         (!engine.rounds_inputs() || limits.rounded_inputs);
}

std::optional<std::size_t> choose_engine(std::span<const Engine> fastest_first, const EngineLimits& limits) {
  const auto found =
      std::ranges::find_if(fastest_first, [&](const Engine& engine) { return permits(limits, engine); });
  if (found == fastest_first.end()) {
    return std::nullopt;
  }
  return static_cast<std::size_t>(found - fastest_first.begin());
}

std::vector<Engine> choosable(std::span<const Engine> fastest_first) {
  std::vector<Engine> kept;
  for (const Engine& engine : fastest_first) {
    if (std::ranges::none_of(kept, [&](const Engine& earlier) { return replaces(earlier, engine); })) {
      kept.push_back(engine);
    }
  }
  return kept;
}

}  // namespace vdnn::cuda
