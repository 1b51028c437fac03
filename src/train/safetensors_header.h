#pragma once
// The header of a safetensors file: text to write, and the reading of text that may be damaged or hostile.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "vdnn/safetensors.h"

namespace vdnn {

// For messages: in quotes, of what is long only the beginning, all of it ASCII.
std::string printable(std::string_view text);

// "F32". Throws InvalidArgument for a type that these files do not have.
std::string_view name_of(DataType type);

// Throws DataError.
[[noreturn]] void reject_safetensors(const std::filesystem::path& path, const std::string& problem);

// Throws InvalidArgument where SafetensorsWriter does. Padded with spaces to a multiple of eight bytes.
std::string safetensors_header(const std::vector<SafetensorsTensor>& tensors,
                               const SafetensorsMetadata& metadata);

struct SafetensorsHeader {
  // Offsets count from the header's end.
  struct Entry {
    SafetensorsTensor tensor;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  SafetensorsMetadata metadata;
  std::vector<Entry> entries;  // each begins where the one before it ends, the last ends with the data
};

// Throws DataError, which names `path`, where SafetensorsFile does.
SafetensorsHeader parse_safetensors_header(const std::filesystem::path& path, const std::string& text,
                                           std::uint64_t data_bytes);

}  // namespace vdnn
