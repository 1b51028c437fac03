// Fashion-MNIST (src/data/fashion_mnist.cpp). The input is a tree (scratch.h) of two files, `images` and
// `labels`, before compression. Both splits use these files.

#include <algorithm>

#include "fuzz/gzip.h"
#include "fuzz/samples.h"
#include "fuzz/scratch.h"
#include "fuzz/target.h"

namespace vdnn::fuzz {

namespace {

constexpr std::size_t kPixels = 784;  // 28x28
constexpr std::size_t kLabelsHeader = 8;

// The contents of a file of the tree, empty if the file is missing.
Bytes contents_of(const std::vector<TreeFile>& files, const std::string& name) {
  const auto found = std::ranges::find(files, name, &TreeFile::name);
  return found == files.end() ? Bytes() : found->bytes;
}

std::optional<DatasetSplits> open() {
  return attempt<DataError>([] {
    return open_dataset({.text = "fashion-mnist:" + scratch().directory().string(),
                         .sample_dims = {1, 28, 28},
                         .classes = 10});
  });
}

}  // namespace

bool run_fashion_mnist(Input input) {
  const std::vector<TreeFile> files = parse_tree(input);
  const Bytes images = gzip(contents_of(files, "images"));
  const Bytes labels = contents_of(files, "labels");
  for (const std::string split : {"train", "t10k"}) {
    scratch().write(split + "-images-idx3-ubyte.gz", images);
    scratch().write(split + "-labels-idx1-ubyte.gz", gzip(labels));
  }
  const std::optional<DatasetSplits> splits = open();
  if (!splits) {
    return false;
  }
  for (const auto* data : {splits->training.get(), splits->test.get()}) {
    require(data->size() == labels.size() - kLabelsHeader, "there is one sample per label");
    for (std::uint64_t index = 0; index < data->size(); ++index) {
      require(read_sample(*data, index).target == labels[kLabelsHeader + index],
              "labels are equal to those of the file");
    }
  }
  return true;
}

std::vector<Seed> fashion_mnist_seeds() {
  Bytes images{0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28};
  images.resize(images.size() + 2 * kPixels, 128);
  return {{"two", join_tree({{"images", images}, {"labels", {0, 0, 8, 1, 0, 0, 0, 2, 3, 9}}})}};
}

}  // namespace vdnn::fuzz
