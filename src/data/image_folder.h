#pragma once
// A data set of image files in one folder per class, the usual layout of ImageNet.

#include <filesystem>

#include "vdnn/dataset.h"

namespace vdnn {

// Opens `directory`/train/CLASS/* for training and `directory`/test/CLASS/* (or val, if test does not exist)
// for evaluation. Without a folder `train`, opens `directory`/CLASS/* for training only. The splits must have
// the same classes, and no class may be empty.
//
// Classes are numbered in the order of their names, and the samples of a class in the order of their file
// names. Names are sorted by bytes. An image is a file with the extension jpg, jpeg or png, in upper or lower
// case, unless its name begins with a dot. Pixels are normalised with ImageNet's statistics.
//
// The call lists the folders. A file is opened only when its sample is read; read() throws DataError if the
// file is damaged. Throws the exceptions of open_dataset().
DatasetSplits open_image_folder(const std::filesystem::path& directory, const DatasetOptions& options);

}  // namespace vdnn
