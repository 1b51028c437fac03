#pragma once
// The header of a safetensors file. safetensors_header() makes the text to write; parse_safetensors_header()
// parses text that may be damaged or hostile.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "vdnn/safetensors.h"

namespace vdnn {

// Returns `text` for a message: in quotes, cut off if long, in ASCII only.
std::string printable(std::string_view text);

// Returns for example "F32". Throws InvalidArgument for a type that these files do not have.
std::string_view name_of(DataType type);

// Throws DataError with the path and the problem.
[[noreturn]] void reject_safetensors(const std::filesystem::path& path, const std::string& problem);

// Returns the header's text, padded with spaces to a multiple of eight bytes. Throws InvalidArgument for the
// reasons that SafetensorsWriter documents.
std::string safetensors_header(const std::vector<SafetensorsTensor>& tensors,
                               const SafetensorsMetadata& metadata);

struct SafetensorsHeader {
  // `begin` and `end` count from the header's end.
  struct Entry {
    SafetensorsTensor tensor;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  SafetensorsMetadata metadata;
  std::vector<Entry> entries;  // each begins where the previous one ends; the last ends with the data
};

// Throws DataError for the reasons that SafetensorsFile documents; the message has `path`.
SafetensorsHeader parse_safetensors_header(const std::filesystem::path& path, const std::string& text,
                                           std::uint64_t data_bytes);

}  // namespace vdnn
