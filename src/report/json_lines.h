#pragma once
// The `--json` output for programs: one object per line.

#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>

namespace vdnn {

// Belongs to one thread.
class JsonLines {
 public:
  // Replaces the file at `path`; `/dev/stdout` is this process's standard output, wherever that goes. Throws
  // InvalidArgument, without any change, if check_output_path() does.
  explicit JsonLines(const std::string& path);
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;

  // Writes `object` as one line that begins with "schema": 1, and flushes it, so that concurrent readers see
  // whole lines. Throws InvalidArgument if `object` is not a JSON object, DataError if writing fails.
  void write(const nlohmann::ordered_json& object);

 private:
  std::string path_;
  std::ofstream file_;
  std::ostream& out_;
};

}  // namespace vdnn
