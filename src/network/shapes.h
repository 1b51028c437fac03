#pragma once
// What a layer makes of its inputs: the type of its output.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "vdnn/op_catalog.h"

namespace vdnn {

// An operand by the name that errors call it.
struct NamedType {
  std::string name;
  TensorType type;
};

// Throws InvalidArgument that names the layer, its inputs and the shapes where they do not fit together, or
// where the spec is none of a layer.
TensorType infer_output(const std::string& layer, const OpSpec& spec, std::span<const NamedType> inputs);

// The targets that a loss compares such a prediction with.
TensorType target_type(const std::string& layer, const OpSpec& loss, const NamedType& prediction);

}  // namespace vdnn
