#pragma once
// Sizes in bytes and counts of elements: 64-bit everywhere, checked where they are multiplied or added, and
// written and read in one notation (`512MiB`, `12GB`, or a bare number of bytes).

#include <cstdint>
#include <string>
#include <string_view>

#include "vdnn/error.h"

namespace vdnn {

// a * b and a + b. Throw InvalidArgument if the result does not fit into 64 bits.
std::uint64_t checked_multiply(std::uint64_t a, std::uint64_t b);
std::uint64_t checked_add(std::uint64_t a, std::uint64_t b);

// The smallest multiple of `unit` (not 0) that is not less than `value`; throws InvalidArgument on overflow.
std::uint64_t round_up(std::uint64_t value, std::uint64_t unit);

// `512MiB`, `12GiB` (binary: KiB, MiB, GiB, TiB), `12GB` (decimal: KB, MB, GB, TB), `4096` (bytes). `12G` (K,
// M, G, T) is binary, too. Fractions, for example `1.5GiB`, are accepted if they are whole bytes. Anything
// else throws InvalidArgument with a text that shows the forms.
std::uint64_t parse_size(std::string_view text);

// For people: `24.5 MiB (25690112 bytes)`, `64 KiB (65536 bytes)`, `12 bytes`.
std::string format_size(std::uint64_t bytes);
// The size without the number of bytes, for tables: `24.5 MiB`.
std::string format_rounded_size(std::uint64_t bytes);
// The shortest text that parse_size() reads as exactly `bytes`: `9MiB`, `12GB`, `10752KiB`, `4097`.
std::string exact_size(std::uint64_t bytes);

}  // namespace vdnn
