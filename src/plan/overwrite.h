#pragma once
// Which permissions to overwrite are used. The rule is the same for every policy, so that a feature map
// shares its memory under all of them or under none.

#include <cstdint>
#include <optional>

#include "vdnn/tape.h"

namespace vdnn {

// The position in Op::reads of the read whose memory write `write` of `op` takes; empty if the write gets
// memory of its own. A permission is used if no later op uses the value that is read, and the value that is
// written is no larger. Of several writes that may take the same read, the first gets it.
std::optional<std::uint32_t> overwritten_read(const Tape& tape, OpId op, std::uint32_t write);

}  // namespace vdnn
