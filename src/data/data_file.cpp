#include "src/data/data_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "vdnn/error.h"

namespace vdnn {

namespace {

namespace fs = std::filesystem;

}  // namespace

void reject_file(const fs::path& path, const std::string& problem) {
  throw DataError("'" + path.string() + "': " + problem);
}

void require_directory(const fs::path& path, const std::string& contents, const std::string& hint) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    reject_file(path, "expected a directory with " + contents + ", found " +
                          (fs::exists(path, error) ? "something else" : "nothing") + hint);
  }
}

std::vector<std::uint8_t> read_data_file(const fs::path& path) {
  std::error_code error;
  // Pipes are rejected here, since opening a pipe would block until a process opens it for writing.
  if (fs::exists(path, error) && !fs::is_regular_file(path, error)) {
    reject_file(path, "expected a file, found a directory or something else");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    reject_file(path, std::string("cannot be read: ") + std::strerror(errno));
  }
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) {
    reject_file(path, "cannot be read: " + error.message());
  }
  std::vector<std::uint8_t> bytes(size);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (static_cast<std::uintmax_t>(file.gcount()) != size) {
    reject_file(path, "cannot be read: expected " + std::to_string(size) + " bytes, found " +
                          std::to_string(file.gcount()));
  }
  return bytes;
}

}  // namespace vdnn
