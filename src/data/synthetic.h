#pragma once
// Synthetic samples of any shape that a network can learn, computed instead of stored.

#include "vdnn/dataset.h"

namespace vdnn {

// Each class has a fixed pattern, coarse in space, for each channel; a sample is its class's pattern under
// noise of the same range: a function of seed and index. A label map is a function of the pattern, place by
// place: which of `classes` equal parts of the range the first channel's pattern lies in. Training split
// only. Throws InvalidArgument for a shape or a number of classes that cannot be, and for label maps that are
// not of the sample's space.
DatasetSplits open_synthetic(const DatasetOptions& options);

}  // namespace vdnn
