#pragma once
// Texts and JSON lines of `train` about planning anew.

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>

#include "vdnn/trainer.h"

namespace vdnn {

// A line of --json (docs/replan.schema.json).
nlohmann::ordered_json to_json(const Replanning& replanning);

void print_replanning(std::ostream& out, const Replanning& replanning);

}  // namespace vdnn
