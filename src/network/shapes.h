#pragma once
// Computes the type of a layer's output from the types of its inputs.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "vdnn/op_catalog.h"

namespace vdnn {

// The type of an operand, and the operand's name in messages.
struct NamedType {
  std::string name;
  TensorType type;
};

// Throws InvalidArgument if the inputs do not fit the layer, or if `spec` is not a layer's. The message has
// the names of layer and inputs, and the shapes.
TensorType infer_output(const std::string& layer, const OpSpec& spec, std::span<const NamedType> inputs);

// The type of the targets with which `loss` compares `prediction`.
TensorType target_type(const std::string& layer, const OpSpec& loss, const NamedType& prediction);

}  // namespace vdnn
