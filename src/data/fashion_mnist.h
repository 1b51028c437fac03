#pragma once
// Fashion-MNIST (Xiao, Rasul, Vollgraf, 2017): 60000 grey images of 28x28 for training and 10000 for test, in
// ten classes, as four gzipped IDX files.

#include <filesystem>

#include "vdnn/dataset.h"

namespace vdnn {

// Reads both splits into memory from `directory`, or from the directory of Debian's package if `directory` is
// empty. Throws the exceptions of open_dataset().
DatasetSplits open_fashion_mnist(const std::filesystem::path& directory, const DatasetOptions& options);

}  // namespace vdnn
