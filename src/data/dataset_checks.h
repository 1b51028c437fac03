#pragma once
// Checks of arguments, shared by all data sets of this library.

#include <cstdint>
#include <span>
#include <string>

#include "vdnn/dataset.h"

namespace vdnn {

// Throws InvalidArgument unless `data` has the sample `key.index`, and `image` and `targets` have the size of
// one sample.
void check_read(const Dataset& data, const SampleKey& key, std::span<const float> image,
                std::span<const std::int32_t> targets);

// Call it for a data set with one class per sample. Throws InvalidArgument if the network needs label maps.
void require_one_class_a_sample(const std::string& name, const DatasetOptions& options);

// Throws UnsuitableOptions unless the network has samples of shape `dims` in `classes` classes. The message
// has the shapes and classes of the data set and of the network.
void require_samples(const std::string& name, const Dims& dims, std::int64_t classes,
                     const DatasetOptions& options);

}  // namespace vdnn
