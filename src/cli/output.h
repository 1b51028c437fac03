#pragma once
// What the commands write while they run. A disk that is full is no bad input: it has an error of its own,
// and so its own exit status.

#include <functional>
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "vdnn/error.h"

namespace vdnn {

// Not a DataError: input that cannot be read is one.
class OutputError : public Error {
 public:
  using Error::Error;
};

// Runs `write`, whose DataErrors are failures to write: they become OutputErrors.
void write_output(const std::function<void()>& write);

// What no run fails for: the `warn` of its options.
void log_warning(const std::string& text);

// Puts `text` in the place of what the file held, as a whole or not at all. Throws OutputError.
void replace_file(const std::string& path, const std::string& text);

// Replaces the file at `path` by what `write` writes; /dev/stdout is this process's standard output, wherever
// that leads, and what is there already stays. Throws OutputError.
void write_file(const std::string& path, const std::function<void(std::ostream&)>& write);

// Replaces the file at `path` by these objects, one JSON line each; an empty path is no file. Throws
// OutputError.
void write_json(const std::string& path, const std::vector<nlohmann::ordered_json>& lines);

}  // namespace vdnn
