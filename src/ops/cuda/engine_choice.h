#pragma once
// Which of the engines that a library has for an op: the fastest that is permitted and whose workspace fits.
//
// How fast an engine is only a device can tell. Without one, cuDNN's order stands in for time: its heuristic
// lists what it takes to be faster first. So time is ordinal here, the position in the list (engine_costs.h
// turns it into costs for predictions). A larger budget permits more engines and takes none away, so it never
// leads to a later position: the model is monotone in the budget.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vdnn/cost.h"

namespace vdnn::cuda {

// What cuDNN says of an engine's numbers.
enum class NumericalNote : std::uint8_t {
  kTensorCore,                 // of fp32: inputs are rounded to TF32
  kDownConvertInputs,          // inputs are rounded to a smaller type
  kReducedPrecisionReduction,  // of narrow types: sums are not fp32 throughout
  kFft,
  kNondeterministic,
  kWinograd,
  kStrictNanPropagation,
  kUnknown  // one that a later cuDNN has: it may say anything
};

struct Engine {
  std::string name;  // cuDNN's: "eng" with the engine's number, then its knobs
  std::uint64_t workspace_bytes = 0;
  std::vector<NumericalNote> notes;
  std::optional<double> seconds;  // measured, where it was

  bool has(NumericalNote note) const;
  bool deterministic() const;  // same operands, same bits
  // Are inputs rounded to a smaller type? On tensor cores fp32 is, to TF32.
  bool rounds_inputs() const;
  // To TF32, of fp32, and nothing smaller.
  bool rounds_to_tf32() const;
  // Are sums of narrow types kept in less than fp32?
  bool rounds_sums() const;
  friend bool operator==(const Engine&, const Engine&) = default;
};

// Is it cuDNN's generic fallback, engine 0 of each kind of pass? It is told by its number, which comes
// without knobs: one kernel for all shapes, with no tile size to choose, where every other engine of no
// workspace (implicit GEMMs like eng28 of the forward pass or eng67 on Hopper) has knobs that the heuristic
// sets for the question. In cuDNN 9.19 it is on the list of CUDNN_HEUR_MODE_FALLBACK ("without expectation of
// providing optimal performance") for all 597 questions of the zoo on all GPUs of share/engines, and after
// the recommended engines of nearly all of them. To be on that list is no sign by itself: tuned engines are,
// too. Where the heuristic lists it first, as for depthwise convolutions, it is the library's choice all the
// same.
bool is_generic_engine(std::string_view name);

struct EngineLimits {
  std::uint64_t workspace_bytes = 0;  // at most
  bool deterministic = false;         // only engines that are
  // Also engines that round their inputs; permit it where these are smaller than fp32 already, for what
  // tensor cores do to those is exact.
  bool rounded_inputs = true;
  // Where they are not permitted: those all the same that round fp32 to TF32 and no further.
  bool tf32 = false;
  // Only engines that sum in fp32 throughout, for narrow types.
  bool fp32_sums = false;
};

using vdnn::ProductPrecision;
using vdnn::ProductPrecisions;

// The engines that training may use: they sum in fp32 and give the same bits twice. Any workspace is allowed.
// Factors are fp32 for fp32 and TF32. For bf16 and fp16 they have that type and are not rounded further.
EngineLimits training_limits(ProductPrecision precision);

bool permits(const EngineLimits& limits, const Engine& engine);

// The position of the first engine that keeps to the limits; empty where none does.
std::optional<std::size_t> choose_engine(std::span<const Engine> fastest_first, const EngineLimits& limits);

// Without those that no limits make the choice: an engine before them is permitted wherever they are. In the
// same order.
std::vector<Engine> choosable(std::span<const Engine> fastest_first);

}  // namespace vdnn::cuda
