#pragma once
// What the recipes of this catalog share.

#include <string_view>
#include <vector>

#include "src/ops/recipes.h"
#include "vdnn/op_catalog.h"
#include "vdnn/tape.h"

namespace vdnn::cpu {

using ops::LayerTypes;
using ops::require_count;
using ops::require_fp32_channels_last;
using ops::require_one_to_one;
using ops::require_output;
using ops::require_window;
using ops::window_elements;
using ops::window_output;

LayerTypes types_of(const Op& op);

// The one algorithm of the ops that are loops of our own.
inline constexpr std::string_view kOwnAlgorithm = "vdnn";
std::vector<Algorithm> own_algorithm(std::uint64_t workspace_bytes = 0);

}  // namespace vdnn::cpu
