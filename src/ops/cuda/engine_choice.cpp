#include "src/ops/cuda/engine_choice.h"

#include <algorithm>
#include <limits>

namespace vdnn::cuda {

namespace {

// The degree to which the engine rounds inputs: 0, 1 (fp32 to TF32 only) or 2. Limits that permit a degree
// permit all lower degrees.
int rounding(const Engine& engine) {
  return static_cast<int>(engine.rounds_inputs()) +
         static_cast<int>(engine.rounds_inputs() && !engine.rounds_to_tf32());
}

// True if all limits that permit `other` also permit `engine`.
bool replaces(const Engine& engine, const Engine& other) {
  return engine.workspace_bytes <= other.workspace_bytes &&
         (engine.deterministic() || !other.deterministic()) &&
         (!engine.rounds_sums() || other.rounds_sums()) && rounding(engine) <= rounding(other);
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

bool Engine::rounds_to_tf32() const {
  return has(NumericalNote::kTensorCore) && !has(NumericalNote::kDownConvertInputs) &&
         !has(NumericalNote::kUnknown);
}

bool Engine::rounds_sums() const {
  return has(NumericalNote::kReducedPrecisionReduction) || has(NumericalNote::kUnknown);
}

bool is_generic_engine(std::string_view name) {
  return name == "eng0";
}

EngineLimits training_limits(ProductPrecision precision) {
  const bool narrow = precision == ProductPrecision::kFp16 || precision == ProductPrecision::kBf16;
  return {.workspace_bytes = std::numeric_limits<std::uint64_t>::max(),
          .deterministic = true,
          .rounded_inputs = narrow,
          .tf32 = precision == ProductPrecision::kTf32,
          .fp32_sums = narrow};
}

bool permits(const EngineLimits& limits, const Engine& engine) {
  return engine.workspace_bytes <= limits.workspace_bytes &&
         (engine.deterministic() || !limits.deterministic) && (!engine.rounds_sums() || !limits.fp32_sums) &&
         (!engine.rounds_inputs() || limits.rounded_inputs || (limits.tf32 && engine.rounds_to_tf32()));
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
