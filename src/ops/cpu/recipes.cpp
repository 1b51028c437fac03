#include "src/ops/cpu/recipes.h"

#include <string>

namespace vdnn::cpu {

LayerTypes types_of(const Op& op) {
  return {op.layer_inputs, op.layer_outputs};
}

std::vector<Algorithm> own_algorithm(std::uint64_t workspace_bytes) {
  return {Algorithm{.name = std::string(kOwnAlgorithm), .workspace_bytes = workspace_bytes}};
}

}  // namespace vdnn::cpu
