#include "src/cli/output.h"

#include <spdlog/spdlog.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>

#include "src/base/atomic_file.h"
#include "src/report/json_lines.h"

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
  // If standard output leads to a file, opening it by name would truncate it.
  const bool standard_output = path == "/dev/stdout";
  std::ofstream file;
  if (!standard_output) {
    file.open(path, std::ios::trunc);
  }
  std::string reason;
  try {
    write(standard_output ? std::cout : static_cast<std::ostream&>(file));
  } catch (const DataError& error) {
    reason = error.what();
  }
  // Flushing or closing tries again to write the pending bytes, so errno is the error of this file.
  if (standard_output ? !std::cout.flush() : (file.close(), !file)) {
    reason = std::strerror(errno);
  }
  if (!reason.empty()) {
    throw OutputError("cannot write '" + path + "': " + reason);
  }
}

void write_json(const std::string& path, const std::vector<nlohmann::ordered_json>& lines) {
  if (path.empty()) {
    return;
  }
  write_output([&] {
    JsonLines file(path);
    for (const nlohmann::ordered_json& line : lines) {
      file.write(line);
    }
  });
}

}  // namespace vdnn
