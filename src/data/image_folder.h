#pragma once
// Image files in one folder per class, as ImageNet is usually unpacked.

#include <filesystem>

#include "vdnn/dataset.h"

namespace vdnn {

// Opens `directory`/train/CLASS/* for training and `directory`/test/CLASS/* (or val, if test does not exist)
// for evaluation. Without a folder `train`, opens `directory`/CLASS/* for training only. The splits must have
// the same classes, and no class may be empty.
//
// Classes are numbered by name and the samples of a class by file name, both sorted by bytes. An image is a
// file with the extension jpg, jpeg or png in any case, unless its name begins with a dot. Pixels are
// normalised with ImageNet's statistics.
//
// The folders are listed at once. A file is opened when its sample is read; read() throws DataError if the
// file is damaged. Throws as open_dataset() does.
DatasetSplits open_image_folder(const std::filesystem::path& directory, const DatasetOptions& options);

}  // namespace vdnn
