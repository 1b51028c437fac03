#pragma once
// Synthetic samples of any shape, which are computed instead of stored and which a network can learn to
// classify.

#include "vdnn/dataset.h"

namespace vdnn {

// Each class has a fixed, spatially coarse pattern for each channel. A sample is its class's pattern plus
// noise of the same range, and depends only on seed and index. For a label map, the range is divided into
// `classes` equal parts: the label of a point is the part in which the first channel's pattern lies. There is
// no test split. Throws InvalidArgument for an invalid shape or number of classes, and if a label map does
// not have the sample's spatial dimensions.
DatasetSplits open_synthetic(const DatasetOptions& options);

}  // namespace vdnn
