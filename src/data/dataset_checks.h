#pragma once
// Checks that the data sets of this library share.

#include <cstdint>
#include <span>
#include <string>

#include "vdnn/dataset.h"

namespace vdnn {

// Throws InvalidArgument unless `data` has the sample and the spans have exactly the size of one sample.
void check_read(const Dataset& data, const SampleKey& key, std::span<const float> image,
                std::span<const std::int32_t> targets);

// For a data set with one class per sample: throws InvalidArgument if the network needs label maps.
void require_one_class_a_sample(const std::string& name, const DatasetOptions& options);

// Throws UnsuitableOptions unless the network has samples of shape `dims` in `classes` classes. The message
// names the shapes and classes of both.
void require_samples(const std::string& name, const Dims& dims, std::int64_t classes,
                     const DatasetOptions& options);

}  // namespace vdnn
