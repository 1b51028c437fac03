#include "src/data/image_file.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "src/data/data_file.h"
#include "src/data/jpeg_image.h"
#include "src/data/png_image.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

namespace fs = std::filesystem;

constexpr std::array<std::uint8_t, 2> kJpegStart{0xff, 0xd8};
constexpr std::array<std::uint8_t, 8> kPngStart{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

bool starts_with(std::span<const std::uint8_t> bytes, std::span<const std::uint8_t> start) {
  return bytes.size() >= start.size() && std::ranges::equal(bytes.first(start.size()), start);
}

Image decode(std::span<const std::uint8_t> bytes) {
  if (starts_with(bytes, kJpegStart)) {
    return decode_jpeg(bytes);
  }
  if (starts_with(bytes, kPngStart)) {
    return decode_png(bytes);
  }
  throw DataError("expected a JPEG or PNG image, found " + std::to_string(bytes.size()) +
                  " bytes that begin like neither");
}

// Where a pixel of the result lies in the image, along one dimension. It is between the pixels `near` and
// `far`. Its distance from `near` is `part` / (2 x size of the result).
struct Place {
  std::int64_t near = 0;
  std::int64_t far = 0;
  std::int64_t part = 0;
};

// Distributes `size` places evenly over the `extent` pixels that begin at `begin`.
std::vector<Place> places(std::int64_t begin, std::int64_t extent, std::int64_t size) {
  std::vector<Place> result(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) {
    // This is (i + 1/2) * extent / size - 1/2 in units of 1 / (2 * size), and at least the first pixel's
    // centre.
    const std::int64_t position = std::max<std::int64_t>(0, (2 * i + 1) * extent - size);
    const std::int64_t near = position / (2 * size);
    result[static_cast<std::size_t>(i)] = {
        .near = begin + near, .far = begin + std::min(near + 1, extent - 1), .part = position % (2 * size)};
  }
  return result;
}

// Returns the extent for which extent / `other` = `size` / `other_size`, rounded to a whole pixel and clamped
// to 1 .. `limit`.
std::int64_t cropped(std::int64_t limit, std::int64_t other, std::int64_t size, std::int64_t other_size) {
  return std::clamp<std::int64_t>((2 * other * size + other_size) / (2 * other_size), 1, limit);
}

}  // namespace

Image decode_image(std::span<const std::uint8_t> bytes, std::int64_t channels) {
  return with_channels(decode(bytes), channels);
}

Image read_image_file(const fs::path& path, std::int64_t channels) {
  const std::vector<std::uint8_t> bytes = read_data_file(path);
  try {
    return decode_image(bytes, channels);
  } catch (const DataError& error) {
    throw DataError("'" + path.string() + "': " + error.what());
  }
}

void crop_and_scale(const Image& image, std::int64_t height, std::int64_t width,
                    std::span<float> brightness) {
  const std::int64_t crop_width = cropped(image.width, image.height, width, height);
  const std::int64_t crop_height = cropped(image.height, image.width, height, width);
  const std::vector<Place> rows = places((image.height - crop_height) / 2, crop_height, height);
  const std::vector<Place> columns = places((image.width - crop_width) / 2, crop_width, width);
  const auto whole = static_cast<double>(std::int64_t{255} * 4 * height * width);
  auto out = brightness.begin();
  for (const Place& row : rows) {
    for (const Place& column : columns) {
      for (std::int64_t c = 0; c < image.channels; ++c) {
        const auto pixel = [&](std::int64_t y, std::int64_t x) -> std::int64_t {
          return image.pixels[static_cast<std::size_t>((y * image.width + x) * image.channels + c)];
        };
        const auto across = [&](std::int64_t y) {
          return pixel(y, column.near) * (2 * width - column.part) + pixel(y, column.far) * column.part;
        };
        const std::int64_t sum = across(row.near) * (2 * height - row.part) + across(row.far) * row.part;
        *out++ = static_cast<float>(static_cast<double>(sum) / whole);
      }
    }
  }
}

}  // namespace vdnn
