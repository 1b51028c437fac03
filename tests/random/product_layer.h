#pragma once
// A custom layer for random networks.

#include <memory>

#include "vdnn/custom_layer.h"

namespace vdnn::testing {

// y = a b, element by element. Unlike Doubling (tests/train/every_layer.h), it has two inputs whose gradients
// one op makes, a saved value from another op, workspace, and permissions to overwrite.
std::shared_ptr<const CustomLayer> make_product();

}  // namespace vdnn::testing
