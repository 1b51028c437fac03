#pragma once
// Decides which permissions to overwrite are used. The rule is the same for every policy, so that a feature
// map shares its memory under all policies or under none.

#include <cstdint>
#include <optional>

#include "vdnn/tape.h"

namespace vdnn {

// Returns the position in Op::reads of the value that write `write` of `op` overwrites; empty if the written
// value has its own memory. A permission is used if no later op uses the read value and the written value is
// not larger. If several writes may overwrite the same value, the first of them does.
std::optional<std::uint32_t> overwritten_read(const Tape& tape, OpId op, std::uint32_t write);

}  // namespace vdnn
