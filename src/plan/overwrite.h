#pragma once
// Decides which permissions to overwrite are used. The rule is the same for every policy, so that a feature
// map shares its memory under all of them or under none.

#include <cstdint>
#include <optional>

#include "vdnn/tape.h"

namespace vdnn {

// The position in Op::reads of the read whose memory write `write` of `op` uses; empty if the write has its
// own memory. A permission is used if no later op uses the read value and the written value is no larger. If
// several writes may overwrite the same read, the first one does.
std::optional<std::uint32_t> overwritten_read(const Tape& tape, OpId op, std::uint32_t write);

}  // namespace vdnn
