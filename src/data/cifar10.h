#pragma once
// CIFAR-10 (Krizhevsky, 2009) in its binary version: data_batch_1.bin to data_batch_5.bin for training and
// test_batch.bin, as records of a label and 32x32 pixels of red, then green, then blue.

#include <filesystem>

#include "vdnn/dataset.h"

namespace vdnn {

// Of `directory`, or of cifar-10-batches-bin in it, as the archive unpacks. Both splits, read as a whole; a
// file may have any number of records but none. Throws as open_dataset() does.
DatasetSplits open_cifar10(const std::filesystem::path& directory, const DatasetOptions& options);

}  // namespace vdnn
