#pragma once
// Schedules as files: JSON, `"schema": 1`, described by docs/schedule.schema.json. A file holds the schedule
// and a fingerprint of its tape; reading checks the fingerprint against the tape on which the schedule is to
// run.

#include <iosfwd>
#include <string>

#include "vdnn/schedule.h"

namespace vdnn {

// A hash over everything in a tape that a schedule depends on: names, operands, sizes, and the set of
// algorithms of each op, whatever their order. 16 hex digits.
std::string fingerprint(const Tape& tape);

// `origin` is a JSON object that describes what the tape was made from. The file contains it verbatim.
void write_schedule(std::ostream& out, const Tape& tape, const Schedule& schedule, const std::string& origin);

// The `origin` of a stored schedule. Throws DataError if the file is no schedule.
std::string read_schedule_origin(std::istream& in);
// Throws DataError for a file that is no schedule, has another schema, unknown keys or numbers out of range,
// or was made for another tape. It does not check the schedule (checker.h).
Schedule read_schedule(std::istream& in, const Tape& tape);

}  // namespace vdnn
