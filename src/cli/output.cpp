#include "src/cli/output.h"

#include <spdlog/spdlog.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <span>

#include "src/base/atomic_file.h"

namespace vdnn {

void write_output(const std::function<void()>& write) {
  try {
    write();
  } catch (const DataError& error) {
    throw OutputError(error.what());
  }
}

void log_warning(const std::string& text) {
  spdlog::warn("{}", text);
}

void replace_file(const std::string& path, const std::string& text) {
  write_output([&] {
    AtomicFile file(path, text.size());
    file.write(std::as_bytes(std::span(text)));
    file.commit();
  });
}

void write_file(const std::string& path, const std::function<void(std::ostream&)>& write) {
  std::ofstream file(path, std::ios::trunc);
  std::string reason;
  try {
    write(file);
  } catch (const DataError& error) {
    reason = error.what();
  }
  // Writes again what could not be written: errno is that of this file.
  file.close();
  if (!file) {
    reason = std::strerror(errno);
  }
  if (!reason.empty()) {
    throw OutputError("cannot write '" + path + "': " + reason);
  }
}

}  // namespace vdnn
