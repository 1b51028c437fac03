#pragma once
// Building blocks that the recipes of this catalog and of other catalogs have in common.

#include "src/ops/recipes.h"

namespace vdnn::cpu {

using ops::LayerTypes;
using ops::own_algorithm;
using ops::require_count;
using ops::require_fp32_channels_last;
using ops::require_one_to_one;
using ops::require_output;
using ops::require_window;
using ops::types_of;
using ops::window_elements;
using ops::window_output;

}  // namespace vdnn::cpu
