#pragma once
// Schedules as files: JSON, `"schema": 1`, described by docs/schedule.schema.json. A file holds the schedule
// and a fingerprint of its tape; reading checks it against the tape that it is to run on.

#include <iosfwd>
#include <string>

#include "vdnn/schedule.h"

namespace vdnn {

// A hash over everything in a tape that a schedule depends on (names, operands, sizes, which algorithms there
// are, in whatever order): 16 hex digits.
std::string fingerprint(const Tape& tape);

// `origin` is a JSON object, kept verbatim: what the tape was made from, for whoever reads the file.
void write_schedule(std::ostream& out, const Tape& tape, const Schedule& schedule, const std::string& origin);

// The `origin` of a stored schedule. Throws DataError for what is not one.
std::string read_schedule_origin(std::istream& in);
// Throws DataError: not such a file, another schema, unknown keys, numbers out of range, another tape.
Schedule read_schedule(std::istream& in, const Tape& tape);

}  // namespace vdnn
