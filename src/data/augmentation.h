#pragma once
// The usual augmentation for CIFAR-10 (Lee et al., Deeply-Supervised Nets, AISTATS 2015; He et al., CVPR
// 2016): a random crop of the image padded with zeros, mirrored half of the time. The crop depends only on
// seed, epoch and index, so a resumed training, or one that reads in another order, sees the same pixels.

#include <cstdint>
#include <memory>

#include "vdnn/dataset.h"

namespace vdnn {

struct AugmentationOptions {
  std::uint64_t seed = 1;
  std::int64_t crop_padding = 4;  // pixels on each side; at least 0, less than height and width
};

// Returns `data` with its samples augmented. Label maps move with their images and are filled up with -1.
// Throws InvalidArgument if the samples are not images in two dimensions or the padding is out of range.
std::unique_ptr<Dataset> augmented(std::unique_ptr<Dataset> data, const AugmentationOptions& options);

}  // namespace vdnn
