#pragma once
// The `--json` output: one object a line, for programs.

#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>

namespace vdnn {

// Belongs to one thread.
class JsonLines {
 public:
  // Replaces the file at `path`; `/dev/stdout` is this process's standard output, wherever that goes. Throws
  // InvalidArgument, and changes nothing, where check_output_path() does.
  explicit JsonLines(const std::string& path);
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;

  // Writes `object` as one line that begins with "schema": 1, and hands it to the system at once: whoever
  // reads along sees whole lines. Throws InvalidArgument for what is not an object, DataError when writing
  // fails.
  void write(const nlohmann::ordered_json& object);

 private:
  std::string path_;
  std::ofstream file_;
  std::ostream& out_;
};

}  // namespace vdnn
