#pragma once
// Output of the commands while they run. A full disk is not bad input, so it has an error and an exit status
// of its own.

#include <functional>
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "vdnn/error.h"

namespace vdnn {

// Output that cannot be written. Not a DataError, since the command treats a DataError as bad input.
class OutputError : public Error {
 public:
  using Error::Error;
};

// Runs `write` and turns its DataErrors, which are failures to write, into OutputErrors.
void write_output(const std::function<void()>& write);

// Logs a problem that does not end the run. The library calls it by RunOptions::warn and similar options.
void log_warning(const std::string& text);

// Replaces the file's contents by `text`, as a whole or not at all. Throws OutputError.
void replace_file(const std::string& path, const std::string& text);

// Replaces the file at `path` by the output of `write`. For /dev/stdout, writes to this process's standard
// output, whatever it is, and keeps earlier output. Throws OutputError.
void write_file(const std::string& path, const std::function<void(std::ostream&)>& write);

// Replaces the file at `path` by these objects, one JSON line each; does nothing if the path is empty. Throws
// OutputError.
void write_json(const std::string& path, const std::vector<nlohmann::ordered_json>& lines);

}  // namespace vdnn
