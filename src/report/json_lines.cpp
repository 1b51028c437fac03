#include "src/report/json_lines.h"

#include <cerrno>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>

#include "src/report/output_path.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

constexpr int kSchema = 1;

// If standard output leads to a file, opening it by name would truncate or overwrite it.
bool is_standard_output(const std::string& path) {
  return path == "/dev/stdout";
}

std::ofstream open(const std::string& path) {
  if (is_standard_output(path)) {
    return {};
  }
  check_output_path(path);
  std::ofstream file(path, std::ios::trunc);
  if (!file) {
    throw InvalidArgument("cannot write '" + path + "': " + std::strerror(errno));
  }
  return file;
}

}  // namespace

JsonLines::JsonLines(const std::string& path)
    : path_(path),
      file_(open(path)),
      out_(is_standard_output(path) ? std::cout : static_cast<std::ostream&>(file_)) {}

void JsonLines::write(const nlohmann::ordered_json& object) {
  if (!object.is_object()) {
    throw InvalidArgument("a JSON line is an object, not " + std::string(object.type_name()));
  }
  nlohmann::ordered_json line = {{"schema", kSchema}};
  line.update(object);
  out_ << line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n' << std::flush;
  if (!out_) {
    throw DataError("writing to '" + path_ + "' failed: " + std::strerror(errno));
  }
}

}  // namespace vdnn
