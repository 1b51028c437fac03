#pragma once
// The augmentation that CIFAR-10 is usually trained with (Lee et al., Deeply-Supervised Nets, AISTATS 2015;
// He et al., CVPR 2016): a random crop of the image padded with zeros, mirrored half of the time. Which, is a
// function of seed, epoch and index alone: resuming training and reading in any order give the same pixels.

#include <cstdint>
#include <memory>

#include "vdnn/dataset.h"

namespace vdnn {

struct AugmentationOptions {
  std::uint64_t seed = 1;
  std::int64_t crop_padding = 4;  // pixels on each side; at least 0, less than height and width
};

// `data` with its samples augmented; label maps move along with their images, -1 coming in. Throws
// InvalidArgument when the samples are not images in two dimensions, or padding is out of range.
std::unique_ptr<Dataset> augmented(std::unique_ptr<Dataset> data, const AugmentationOptions& options);

}  // namespace vdnn
