#include "src/ops/cuda/engine_refusals.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "vdnn/size.h"

namespace vdnn::cuda {

namespace {

constexpr std::uint64_t kBeyond32Bits = std::uint64_t{1} << 31;

template <class T>
bool among(const std::vector<T>& permitted, const T& value) {
  return permitted.empty() || std::ranges::find(permitted, value) != permitted.end();
}

bool is_engine(std::string_view name, std::string_view number) {
  return number.empty() || name == number ||
         (name.starts_with(number) && name.substr(number.size()).starts_with('_'));
}

std::array<std::uint64_t, 3> tensor_elements(const ops::Convolution& convolution) {
  const ops::ConvolutionDims dims = ops::dims_of(convolution);
  return {element_count(dims.x), element_count(dims.y), element_count(dims.filter)};
}

std::uint64_t operand_bytes(const EngineQuestion& question) {
  std::uint64_t bytes = 0;
  for (const std::uint64_t elements : tensor_elements(question.convolution)) {
    bytes = checked_add(bytes, checked_multiply(elements, size_of(question.elements)));
  }
  return bytes;
}

bool concerns(const EngineRefusal& refusal, const EngineQuestion& question) {
  const ops::Convolution& convolution = question.convolution;
  return among(refusal.elements, question.elements) && among(refusal.directions, question.direction) &&
         refusal.dimensions_of_space.value_or(convolution.kernel.size()) == convolution.kernel.size() &&
         (!refusal.wide_windows || element_count(convolution.kernel) > 1) &&
         std::ranges::max(tensor_elements(convolution)) >= refusal.tensor_elements;
}

std::string text_of(const EngineRefusal& refusal) {
  return std::string(refusal.why) + " (" + std::string(refusal.source) + ")";
}

}  // namespace

std::optional<CudnnVersion> cudnn_version_of(std::string_view source) {
  constexpr std::string_view kLibrary = "cudnn ";
  if (!source.starts_with(kLibrary)) {
    return std::nullopt;
  }
  CudnnVersion version{};
  const char* at = source.data() + kLibrary.size();
  const char* const end = source.data() + source.size();
  for (int& part : version) {
    const auto parsed = std::from_chars(at, end, part);
    if (parsed.ec != std::errc() || part < 0) {
      return std::nullopt;
    }
    at = parsed.ptr != end && *parsed.ptr == '.' ? parsed.ptr + 1 : parsed.ptr;
  }
  return version;
}

std::span<const EngineRefusal> engine_refusals() {
  constexpr int kAnyPatch = std::numeric_limits<int>::max();
  static const std::array kRefusals{
      // Reported for bf16 in 9.8 to 9.10; PyTorch therefore avoids cuDNN up to 9.14 in half precision.
      EngineRefusal{.why = "cuDNN 9.8 to 9.14 computes wrong 3-D convolutions in half precision",
                    .source = "pytorch#163539, pytorch#166480",
                    .first = {9, 8, 0},
                    .last = {9, 14, kAnyPatch},
                    .elements = {DataType::kBf16, DataType::kF16},
                    .directions = {},
                    .dimensions_of_space = 3,
                    .wide_windows = true},
      EngineRefusal{.why = "cuDNN 9.10.2 to 9.15 computes wrong 3-D convolutions in TF32",
                    .source = "pytorch#167024",
                    .first = {9, 10, 2},
                    .last = {9, 15, kAnyPatch},
                    .elements = {DataType::kF32},
                    .directions = {},
                    .dimensions_of_space = 3,
                    .rounding_inputs = true},
      EngineRefusal{.why = "above 2^31 elements some engines need a hundred gigabytes of workspace",
                    .source = "pytorch#95024",
                    .elements = {},
                    .directions = {},
                    .dimensions_of_space = {},
                    .tensor_elements = kBeyond32Bits,
                    .workspace_beyond_operands = true},
  };
  return kRefusals;
}

bool refuses(const EngineRefusal& refusal, const CudnnVersion& version, const EngineQuestion& question,
             const Engine& engine) {
  return refusal.first <= version && version <= refusal.last && concerns(refusal, question) &&
         is_engine(engine.name, refusal.engine) && (!refusal.rounding_inputs || engine.rounds_inputs()) &&
         (!refusal.workspace_beyond_operands || engine.workspace_bytes > operand_bytes(question));
}

std::vector<Engine> trusted(const EngineQuestion& question, std::vector<Engine> engines,
                            std::string_view source) {
  const std::optional<CudnnVersion> version = cudnn_version_of(source);
  if (!version || engines.empty()) {
    return engines;
  }
  std::set<std::string> reasons;
  for (const EngineRefusal& refusal : engine_refusals()) {
    if (std::erase_if(engines, [&](const Engine& engine) {
          return refuses(refusal, *version, question, engine);
        }) > 0) {
      reasons.insert(text_of(refusal));
    }
  }
  if (engines.empty()) {
    std::string text;
    for (const std::string& reason : reasons) {
      text += (text.empty() ? "" : "; ") + reason;
    }
    throw NoEngine(question, "list " + std::to_string(kEngineRefusals) + " refuses all engines of " +
                                 std::string(source) + ": " + text);
  }
  return engines;
}

}  // namespace vdnn::cuda
