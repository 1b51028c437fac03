#include "src/data/image_folder.h"

#include <algorithm>
#include <cctype>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "src/data/data_file.h"
#include "src/data/dataset_checks.h"
#include "src/data/image_file.h"
#include "src/data/pixel_normalisation.h"
#include "vdnn/option_error.h"

namespace vdnn {

namespace {

namespace fs = std::filesystem;

// Mean and standard deviation of each channel of ImageNet's training split.
std::vector<ChannelStatistics> statistics(std::int64_t channels) {
  if (channels == 1) {
    return {{.mean = 0.449F, .deviation = 0.226F}};
  }
  return {{.mean = 0.485F, .deviation = 0.229F},
          {.mean = 0.456F, .deviation = 0.224F},
          {.mean = 0.406F, .deviation = 0.225F}};
}

// --- listing -----------------------------------------------------------------------------------------------

// The names of the entries of `directory` that `wanted` accepts, sorted by bytes.
template <typename Wanted>
std::vector<std::string> list(const fs::path& directory, Wanted wanted) {
  std::vector<std::string> names;
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
      std::string name = entry.path().filename().string();
      if (!name.starts_with('.') && wanted(entry)) {
        names.push_back(std::move(name));
      }
    }
  } catch (const fs::filesystem_error& error) {
    throw DataError("'" + directory.string() + "': cannot be listed: " + error.code().message());
  }
  std::ranges::sort(names);
  return names;
}

bool is_folder(const fs::directory_entry& entry) {
  std::error_code error;
  return entry.is_directory(error);
}

// Decides by the name, without opening the file. A dangling link or an unreadable file causes an error when
// its sample is read.
bool is_image(const fs::directory_entry& entry) {
  std::string extension = entry.path().extension().string();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return (extension == ".jpg" || extension == ".jpeg" || extension == ".png") && !is_folder(entry);
}

// The images of one split.
struct Listing {
  struct File {
    std::string name;
    std::int32_t label = 0;
  };

  fs::path directory;
  std::vector<std::string> classes;
  std::vector<File> files;
};

Listing list_classes(const fs::path& directory) {
  Listing listing{.directory = directory, .classes = list(directory, is_folder), .files = {}};
  if (listing.classes.empty()) {
    throw DataError("'" + directory.string() + "': expected a folder of images for each class, found none");
  }
  for (std::size_t label = 0; label < listing.classes.size(); ++label) {
    const fs::path folder = directory / listing.classes[label];
    std::vector<std::string> names = list(folder, is_image);
    if (names.empty()) {
      throw DataError("'" + folder.string() +
                      "': expected images (jpg, jpeg, png) of this class, found none");
    }
    for (std::string& name : names) {
      listing.files.push_back({.name = std::move(name), .label = static_cast<std::int32_t>(label)});
    }
  }
  return listing;
}

void require_same_classes(const Listing& training, const Listing& test) {
  const auto require_within = [](const Listing& some, const Listing& all) {
    for (const std::string& name : some.classes) {
      if (!std::ranges::binary_search(all.classes, name)) {
        throw DataError("'" + (all.directory / name).string() + "': expected a folder for the class of '" +
                        (some.directory / name).string() +
                        "', found none; splits must have the same classes");
      }
    }
  };
  require_within(training, test);
  require_within(test, training);
}

// --- reading -----------------------------------------------------------------------------------------------

class ImageFolder : public Dataset {
 public:
  ImageFolder(Listing listing, Dims dims)
      : listing_(std::move(listing)), dims_(std::move(dims)), statistics_(statistics(dims_[0])) {}

  std::uint64_t size() const override { return listing_.files.size(); }
  const Dims& sample_dims() const override { return dims_; }
  const Dims& target_dims() const override { return target_dims_; }
  std::int64_t classes() const override { return static_cast<std::int64_t>(listing_.classes.size()); }

  void read(const SampleKey& key, std::span<float> image, std::span<std::int32_t> targets) const override {
    check_read(*this, key, image, targets);
    const Listing::File& file = listing_.files[key.index];
    targets[0] = file.label;
    const fs::path path =
        listing_.directory / listing_.classes[static_cast<std::size_t>(file.label)] / file.name;
    crop_and_scale(read_image_file(path, dims_[0]), dims_[1], dims_[2], image);
    for (std::size_t i = 0; i < image.size(); ++i) {
      image[i] = statistics_[i % statistics_.size()].normalise(image[i]);
    }
  }

 private:
  Listing listing_;
  Dims dims_;
  Dims target_dims_;
  std::vector<ChannelStatistics> statistics_;
};

void require_images(const DatasetOptions& options) {
  const Dims& dims = options.sample_dims;
  if (dims.size() != 3 || (dims[0] != 1 && dims[0] != 3)) {
    throw InvalidArgument("'" + options.text +
                          "' has two-dimensional images of 3 channels or 1 (grey): 3xHxW or 1xHxW; the "
                          "network expects " +
                          to_string(dims));
  }
  element_count(dims);  // throws for invalid extents
}

}  // namespace

DatasetSplits open_image_folder(const fs::path& directory, const DatasetOptions& options) {
  require_one_class_a_sample("'" + options.text + "'", options);
  require_images(options);
  require_directory(directory, "images in a folder for each class");
  std::error_code error;
  const bool split = fs::is_directory(directory / "train", error);
  Listing training = list_classes(split ? directory / "train" : directory);
  if (static_cast<std::int64_t>(training.classes.size()) != options.classes) {
    const std::string classes = std::to_string(training.classes.size());
    throw UnsuitableOptions("'" + options.text + "' has " + classes + " classes, the network expects " +
                                std::to_string(options.classes),
                            {{.option = "model.classes", .value = classes}});
  }
  DatasetSplits splits;
  for (const char* const name : {"test", "val"}) {
    if (split && splits.test == nullptr && fs::is_directory(directory / name, error)) {
      Listing test = list_classes(directory / name);
      require_same_classes(training, test);
      splits.test = std::make_unique<ImageFolder>(std::move(test), options.sample_dims);
    }
  }
  splits.training = std::make_unique<ImageFolder>(std::move(training), options.sample_dims);
  return splits;
}

}  // namespace vdnn
