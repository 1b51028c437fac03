#pragma once
// The type of a layer's output, from its inputs.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "vdnn/op_catalog.h"

namespace vdnn {

// An operand and its name in messages.
struct NamedType {
  std::string name;
  TensorType type;
};

// Throws an InvalidArgument that names the layer, its inputs and the shapes if they do not fit together, or
// if the spec is not a layer's.
TensorType infer_output(const std::string& layer, const OpSpec& spec, std::span<const NamedType> inputs);

// The type of the targets with which the loss compares this prediction.
TensorType target_type(const std::string& layer, const OpSpec& loss, const NamedType& prediction);

}  // namespace vdnn
