#pragma once
// Synthetic samples of any shape that a network can learn, computed instead of stored.

#include "vdnn/dataset.h"

namespace vdnn {

// Each class has a fixed pattern, coarse in space, for each channel. A sample is its class's pattern plus
// noise of the same range, and depends only on seed and index. The label map has at each place the part of
// the range, out of `classes` equal parts, in which the first channel's pattern lies. There is no test split.
// Throws InvalidArgument for an invalid shape or number of classes, and for label maps without the sample's
// space.
DatasetSplits open_synthetic(const DatasetOptions& options);

}  // namespace vdnn
