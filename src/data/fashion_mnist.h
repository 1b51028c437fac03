#pragma once
// Fashion-MNIST (Xiao, Rasul, Vollgraf, 2017): 60000 and 10000 grey images of 28x28 in ten classes, as four
// gzipped IDX files.

#include <filesystem>

#include "vdnn/dataset.h"

namespace vdnn {

// Of `directory`; empty: where Debian's package puts them. Both splits, read as a whole. Throws as
// open_dataset() does.
DatasetSplits open_fashion_mnist(const std::filesystem::path& directory, const DatasetOptions& options);

}  // namespace vdnn
