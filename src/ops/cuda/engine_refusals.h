#pragma once
// Engines that are not to be trusted, whoever lists them: what others found to compute wrong values, or to
// ask for memory beyond all measure, in which versions of cuDNN, for which questions. EngineSource::list()
// leaves them out. A new finding is a new entry with its source, and a new kEngineRefusals.

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/ops/cuda/engine_source.h"

namespace vdnn::cuda {

// Version of the list.
inline constexpr int kEngineRefusals = 1;

// Major, minor, patch.
using CudnnVersion = std::array<int, 3>;

// Of an engine source by its name: "cudnn 9.19.0, recorded". Empty where its engines are not cuDNN's.
std::optional<CudnnVersion> cudnn_version_of(std::string_view source);

// All conditions have to hold; one that is left out always does.
struct EngineRefusal {
  std::string_view why;
  std::string_view source;
  CudnnVersion first{};
  CudnnVersion last{std::numeric_limits<int>::max()};
  std::vector<DataType> elements;
  std::vector<Direction> directions;
  std::optional<std::size_t> dimensions_of_space;
  // The engine's number: "eng12" with whatever knobs.
  std::string_view engine;
  bool rounding_inputs = false;  // only engines that round their inputs
  bool wide_windows = false;     // only windows of more than one element
  // Only where one of X, Y and filter has so many elements at least.
  std::uint64_t tensor_elements = 0;
  // Only engines that want more workspace than X, Y and filter take together.
  bool workspace_beyond_operands = false;
};

std::span<const EngineRefusal> engine_refusals();

bool refuses(const EngineRefusal& refusal, const CudnnVersion& version, const EngineQuestion& question,
             const Engine& engine);

// Without those that the list refuses, in the same order; `source` listed them. Throws NoEngine with the
// reasons where none is left.
std::vector<Engine> trusted(const EngineQuestion& question, std::vector<Engine> engines,
                            std::string_view source);

}  // namespace vdnn::cuda
