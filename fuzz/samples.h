#pragma once
// Checks the promises of every data set about its samples (include/vdnn/dataset.h).

#include "fuzz/target.h"
#include "vdnn/dataset.h"
#include "vdnn/error.h"

namespace vdnn::fuzz {

struct Sample {
  std::vector<float> image;
  std::int32_t target = 0;
  friend bool operator==(const Sample&, const Sample&) = default;
};

// Throws like Dataset::read(), and a Finding for an impossible sample.
Sample read_sample(const Dataset& data, std::uint64_t index);

}  // namespace vdnn::fuzz
