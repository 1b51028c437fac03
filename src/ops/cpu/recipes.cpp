#include "src/ops/cpu/recipes.h"

#include <string>

namespace vdnn::cpu {

std::vector<Algorithm> own_algorithm(std::uint64_t workspace_bytes) {
  return {Algorithm{.name = std::string(kOwnAlgorithm), .workspace_bytes = workspace_bytes}};
}

}  // namespace vdnn::cpu
