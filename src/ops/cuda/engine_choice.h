#pragma once
// Chooses among the engines that a library has for an op: the fastest one that is permitted and whose
// workspace fits.
//
// Only a device can show how fast an engine is. Without a device, the engine's position in cuDNN's list
// replaces its time, since cuDNN's heuristic lists engines by estimated speed; engine_costs.h turns positions
// into costs for predictions. A larger budget permits all engines that a smaller one permits. So a larger
// budget never leads to a later position: the model is monotone in the budget.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vdnn/cost.h"

namespace vdnn::cuda {

// cuDNN's notes on the numerics of an engine.
enum class NumericalNote : std::uint8_t {
  kTensorCore,                 // for fp32: inputs are rounded to TF32
  kDownConvertInputs,          // inputs are rounded to a smaller type
  kReducedPrecisionReduction,  // for narrow types: sums are not fp32 throughout
  kFft,
  kNondeterministic,
  kWinograd,
  kStrictNanPropagation,
  kUnknown  // a note of a later cuDNN, with unknown meaning
};

struct Engine {
  std::string name;  // cuDNN's name: "eng" with the engine's number, then its knobs
  std::uint64_t workspace_bytes = 0;
  std::vector<NumericalNote> notes;
  std::optional<double> seconds;  // if measured

  bool has(NumericalNote note) const;
  bool deterministic() const;  // whether the same operands give the same bits
  // True if inputs are rounded to a smaller type, for example fp32 to TF32 by tensor cores.
  bool rounds_inputs() const;
  // True if fp32 is rounded to TF32 and to no smaller type.
  bool rounds_to_tf32() const;
  // True if sums of narrow types are less precise than fp32.
  bool rounds_sums() const;
  friend bool operator==(const Engine&, const Engine&) = default;
};

// True for cuDNN's generic fallback, engine 0 of each kind of pass. The generic engine has number 0 and no
// knobs, since it is one kernel for all shapes, with no tile size to choose. Every other engine without
// workspace (implicit GEMMs like eng28 of the forward pass or eng67 on Hopper) has knobs that the heuristic
// sets for the question. In cuDNN 9.19 the generic engine is on the list of CUDNN_HEUR_MODE_FALLBACK
// ("without expectation of providing optimal performance") for all 597 questions of the zoo on all GPUs of
// share/engines. For nearly all of these questions the generic engine follows the recommended engines.
// Membership in that list does not identify the generic engine, since the list contains tuned engines, too.
// If the heuristic lists the generic engine first, as for depthwise convolutions, this engine is still the
// choice.
bool is_generic_engine(std::string_view name);

struct EngineLimits {
  std::uint64_t workspace_bytes = 0;  // the most bytes of workspace
  bool deterministic = false;         // permit only deterministic engines
  // Permit engines that round their inputs. For narrower types than fp32, tensor cores do not round inputs.
  bool rounded_inputs = true;
  // Permit engines that round fp32 to TF32 and no further, even without rounded_inputs.
  bool tf32 = false;
  // For narrow types, permit only engines that sum in fp32 throughout.
  bool fp32_sums = false;
};

using vdnn::ProductPrecision;
using vdnn::ProductPrecisions;

// The limits of training: engines must sum in fp32 and repeat their bits. Any workspace is permitted. For
// precision fp32 or TF32, factors are fp32. For bf16 and fp16, factors have that type, and engines do not
// round them further.
EngineLimits training_limits(ProductPrecision precision);

bool permits(const EngineLimits& limits, const Engine& engine);

// Returns the engines that are the first choice under some limits, in the given order. An engine is omitted
// if all limits that permit it also permit an earlier engine.
std::vector<Engine> choosable(std::span<const Engine> fastest_first);

}  // namespace vdnn::cuda
