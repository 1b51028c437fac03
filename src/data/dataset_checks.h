#pragma once
// Checks that the data sets of this library share.

#include <cstdint>
#include <span>
#include <string>

#include "vdnn/dataset.h"

namespace vdnn {

// Throws InvalidArgument unless `data` has the sample and the spans have room for exactly one.
void check_read(const Dataset& data, const SampleKey& key, std::span<const float> image,
                std::span<const std::int32_t> targets);

// Throws InvalidArgument if the network needs label maps, for a data set with one class per sample.
void require_one_class_a_sample(const std::string& name, const DatasetOptions& options);

// Throws UnsuitableOptions, naming both, unless the network has samples of this shape in `classes` classes.
void require_samples(const std::string& name, const Dims& dims, std::int64_t classes,
                     const DatasetOptions& options);

}  // namespace vdnn
