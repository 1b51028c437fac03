#pragma once
// Image files in a folder for each class, as ImageNet is usually unpacked.

#include <filesystem>

#include "vdnn/dataset.h"

namespace vdnn {

// `directory`/train/CLASS/* and, where there is one, `directory`/test/CLASS/* (else val); without a folder
// `train`, `directory`/CLASS/* for training only. Classes are numbered by name, samples of a class by file
// name, both in the order of bytes. Files with the extension jpg, jpeg or png in any case count; other files,
// and all names that begin with a dot, do not. Lists the folders at once; opens a file when its sample is
// read, which then throws DataError where the file is damaged. Pixels are normalised with ImageNet's
// statistics. Throws as open_dataset() does; the splits must have the same classes, and no class may be
// empty.
DatasetSplits open_image_folder(const std::filesystem::path& directory, const DatasetOptions& options);

}  // namespace vdnn
