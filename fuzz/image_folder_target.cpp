// Directories of images (src/data/image_folder.cpp): the input is a tree (scratch.h).

#include "fuzz/samples.h"
#include "fuzz/scratch.h"
#include "fuzz/target.h"
#include "tests/data/encoded_images.h"

namespace vdnn::fuzz {

namespace {

constexpr std::int64_t kClasses = 2;

// Samples are listed class by class. Damage of a file is detected when its sample is read.
void check_split(const Dataset& data) {
  require(data.size() >= static_cast<std::uint64_t>(kClasses) && data.classes() == kClasses,
          "each class has an image");
  std::int32_t label = 0;
  for (std::uint64_t index = 0; index < data.size(); ++index) {
    const auto sample = attempt<DataError>([&] { return read_sample(data, index); });
    if (sample) {
      require(sample->target >= label, "samples are in the order of their classes");
      label = sample->target;
      require(read_sample(data, index) == *sample, "a sample is the same when it is read again");
    }
  }
}

}  // namespace

bool run_image_folder(Input input) {
  const std::filesystem::path folder = scratch().empty_directory("tree");
  unpack(parse_tree(input), folder);
  // More or fewer classes than expected are no damage of the folder. The network then does not fit, which is
  // an InvalidArgument.
  const auto splits = attempt<DataError>([&] {
    const DatasetOptions options{
        .text = "images:" + folder.string(), .sample_dims = {3, 6, 5}, .classes = kClasses};
    return attempt<InvalidArgument>([&] { return open_dataset(options); });
  });
  if (!splits || !*splits) {
    return false;
  }
  check_split(*(*splits)->training);
  if ((*splits)->test != nullptr) {
    check_split(*(*splits)->test);
  }
  return true;
}

std::vector<Seed> image_folder_seeds() {
  const Bytes png =
      encode(testing::PngFile{.width = 1, .height = 1, .colour = testing::PngColour::kGrey, .values = {7}});
  const Bytes jpeg = encode(
      testing::JpegFile{.width = 1, .height = 1, .colour = testing::JpegColour::kGrey, .pixels = {200}});
  return {{"training", join_tree({{"cat/1.png", png}, {"dog/1.jpg", jpeg}, {"dog/notes.txt", {}}})},
          {"splits", join_tree({{"train/a/x.PNG", png},
                                {"train/b/x.jpeg", jpeg},
                                {"val/a/y.png", png},
                                {"val/b/y.png", png},
                                {"val/.hidden/", {}}})},
          {"others", join_tree({{"a/pipe.png|", {}},
                                {"a/folder.png/", {}},
                                {"b/link.png@", to_bytes("a/pipe.png")},
                                {"b/nowhere.png@", to_bytes("c")},
                                {"b/damaged.jpg", to_bytes("\xff\xd8")}})}};
}

}  // namespace vdnn::fuzz
