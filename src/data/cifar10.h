#pragma once
// CIFAR-10 (Krizhevsky, 2009) in its binary version: data_batch_1.bin to data_batch_5.bin for training and
// test_batch.bin. Each record is a label and 32x32 pixels: all red values, then green, then blue.

#include <filesystem>

#include "vdnn/dataset.h"

namespace vdnn {

// Reads both splits into memory, from `directory` or from its folder cifar-10-batches-bin (the folder in the
// archive). Each file must have at least one record. Throws the exceptions of open_dataset().
DatasetSplits open_cifar10(const std::filesystem::path& directory, const DatasetOptions& options);

}  // namespace vdnn
