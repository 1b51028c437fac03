#pragma once
// Which permissions to overwrite are used. One rule for every policy, so that a feature map has the same
// memory to itself (or not) everywhere.

#include <cstdint>
#include <optional>

#include "vdnn/tape.h"

namespace vdnn {

// The read (its position in Op::reads) whose memory write `write` of `op` takes; empty: it gets its own.
// Granted where the op permits it, nobody uses the value read afterwards, and the value written is no larger.
// Of several writes that may take the same read, the first gets it.
std::optional<std::uint32_t> overwritten_read(const Tape& tape, OpId op, std::uint32_t write);

}  // namespace vdnn
