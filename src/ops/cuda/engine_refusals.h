#pragma once
// Engines that must not be used, because users of cuDNN found that they compute wrong values or request
// excessive memory. Each entry lists the versions of cuDNN and the questions concerned. EngineSource::list()
// omits these engines. For a new finding, add an entry with its source, and increase kEngineRefusals.

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "src/ops/cuda/engine_source.h"

namespace vdnn::cuda {

// Version of the list.
inline constexpr int kEngineRefusals = 1;

// Major, minor, patch.
using CudnnVersion = std::array<int, 3>;

// The version in an engine source's name, for example "cudnn 9.19.0, recorded". Absent if the source's
// engines are not cuDNN's.
std::optional<CudnnVersion> cudnn_version_of(std::string_view source);

// Conditions of a refusal. An engine is refused if all conditions hold. A condition with its default value
// always holds.
struct EngineRefusal {
  std::string_view why;
  std::string_view source;
  CudnnVersion first{};
  CudnnVersion last{std::numeric_limits<int>::max()};
  std::vector<DataType> elements;
  std::vector<Direction> directions;
  std::optional<std::size_t> dimensions_of_space;
  // The engine's number: "eng12" with any knobs.
  std::string_view engine;
  bool rounding_inputs = false;  // only engines that round their inputs
  bool wide_windows = false;     // only windows of more than one element
  // Only if one of X, Y and filter has at least this number of elements.
  std::uint64_t tensor_elements = 0;
  // Only engines with more workspace than X, Y and filter together.
  bool workspace_beyond_operands = false;
};

std::span<const EngineRefusal> engine_refusals();

bool refuses(const EngineRefusal& refusal, const CudnnVersion& version, const EngineQuestion& question,
             const Engine& engine);

// Removes the refused engines from a list of `source`, and keeps its order. Throws NoEngine with the reasons
// if none is left.
std::vector<Engine> trusted(const EngineQuestion& question, std::vector<Engine> engines,
                            std::string_view source);

}  // namespace vdnn::cuda
