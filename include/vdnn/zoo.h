#pragma once
// Networks by name.

#include <cstdint>
#include <string>
#include <vector>

#include "vdnn/network.h"

namespace vdnn {

struct ModelOptions {
  std::string model;
  Dims input;                // C, then space; empty: the model's own
  std::int64_t classes = 0;  // 0: the model's own
  std::int64_t batch = 64;   // > 0
};

std::vector<std::string> model_names();
// Throws InvalidArgument for an unknown model (the message lists the names) and for a batch, a number of
// classes or an input that the model does not support.
Network make_model(const ModelOptions& options);

}  // namespace vdnn
