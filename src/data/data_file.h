#pragma once
// Access to the files and directories of data sets. Messages of errors name the file or directory.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace vdnn {

// Throws DataError with the name of the file or directory and the problem.
[[noreturn]] void reject_file(const std::filesystem::path& path, const std::string& problem);

// Throws DataError unless `path` is a directory. `contents` describes what it should contain; `hint` is
// appended to the message.
void require_directory(const std::filesystem::path& path, const std::string& contents,
                       const std::string& hint = "");

// Reads a whole regular file. Throws DataError if `path` is not a regular file or cannot be read.
std::vector<std::uint8_t> read_data_file(const std::filesystem::path& path);

}  // namespace vdnn
