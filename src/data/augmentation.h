#pragma once
// The usual augmentation for CIFAR-10 (Lee et al., Deeply-Supervised Nets, AISTATS 2015; He et al., CVPR
// 2016). An image is padded with zeros and cropped randomly. Half of the crops are mirrored. The crop depends
// only on seed, epoch and index. So a resumed training run, or one that reads samples in another order, has
// the same pixels.

#include <cstdint>
#include <memory>

#include "vdnn/dataset.h"

namespace vdnn {

struct AugmentationOptions {
  std::uint64_t seed = 1;
  std::int64_t crop_padding = 4;  // pixels on each side; at least 0, less than height and width
};

// Returns `data` with its samples augmented. A label map is cropped and mirrored like its image, and padded
// with -1. Throws InvalidArgument if the samples are not images in two dimensions or the padding is out of
// range.
std::unique_ptr<Dataset> augmented(std::unique_ptr<Dataset> data, const AugmentationOptions& options);

}  // namespace vdnn
