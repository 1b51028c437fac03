#pragma once
// Files and directories of data sets, with errors that name them.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace vdnn {

// Throws DataError with the name of the file or directory and what is wrong with it.
[[noreturn]] void reject_file(const std::filesystem::path& path, const std::string& problem);

// Throws DataError unless there is a directory; `contents` says what is expected in it, `hint` follows the
// message.
void require_directory(const std::filesystem::path& path, const std::string& contents,
                       const std::string& hint = "");

// A regular file as a whole. Throws DataError when there is none or it cannot be read.
std::vector<std::uint8_t> read_data_file(const std::filesystem::path& path);

}  // namespace vdnn
