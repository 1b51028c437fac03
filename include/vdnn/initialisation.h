#pragma once
// Initial parameters by seed, and the hash that tells whether two training runs have the same parameters.

#include <cstdint>
#include <string>
#include <vector>

#include "vdnn/tape.h"

namespace vdnn {

// Initial parameters of a tape in logical form (dense, filters KRSC), drawn as the recipes specify; a
// function of the seed.
std::vector<std::vector<float>> initial_parameters(const Tape& tape, std::uint64_t seed);

// SHA-256 over all parameters in order of creation, little-endian fp32 in logical order.
std::string parameters_sha256(const std::vector<std::vector<float>>& parameters);

}  // namespace vdnn
