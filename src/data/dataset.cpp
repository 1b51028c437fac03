#include "vdnn/dataset.h"

#include <utility>

#include "src/data/augmentation.h"
#include "src/data/cifar10.h"
#include "src/data/fashion_mnist.h"
#include "src/data/image_folder.h"
#include "src/data/synthetic.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

DatasetSplits open_by_name(const DatasetOptions& options) {
  const std::string& text = options.text;
  const std::size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  const std::string directory = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (colon != std::string::npos && directory.empty()) {
    throw InvalidArgument("'" + text + "': expected a directory after the colon");
  }
  if (name == "fashion-mnist") {
    return open_fashion_mnist(directory, options);
  }
  if (text == "synthetic") {
    return open_synthetic(options);
  }
  if (name == "cifar10" && !directory.empty()) {
    return open_cifar10(directory, options);
  }
  if (name == "images" && !directory.empty()) {
    return open_image_folder(directory, options);
  }
  throw InvalidArgument(
      "'" + text + "' is not a data set: expected fashion-mnist[:DIR], cifar10:DIR, images:DIR or synthetic");
}

}  // namespace

DatasetSplits open_dataset(const DatasetOptions& options) {
  DatasetSplits splits = open_by_name(options);
  if (options.augment) {
    splits.training =
        augmented(std::move(splits.training), {.seed = options.seed, .crop_padding = options.crop_padding});
  }
  return splits;
}

}  // namespace vdnn
