#pragma once
// What the data sets of this library check alike.

#include <cstdint>
#include <span>
#include <string>

#include "vdnn/dataset.h"

namespace vdnn {

// Throws InvalidArgument unless `data` has the sample and the spans have room for exactly one.
void check_read(const Dataset& data, const SampleKey& key, std::span<const float> image,
                std::span<const std::int32_t> targets);

// Throws InvalidArgument when the network wants a label map of a data set that has one class a sample.
void require_one_class_a_sample(const std::string& name, const DatasetOptions& options);

// Throws InvalidArgument, naming both, unless the network takes samples of this shape in so many classes.
void require_samples(const std::string& name, const Dims& dims, std::int64_t classes,
                     const DatasetOptions& options);

}  // namespace vdnn
