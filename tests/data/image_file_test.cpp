#include "src/data/image_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "src/base/random.h"
#include "tests/data/encoded_images.h"
#include "tests/temporary_directory.h"
#include "vdnn/error.h"

namespace vdnn::image_file_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::Bytes;
using testing::encode;
using ::testing::HasSubstr;
using testing::JpegColour;
using testing::JpegFile;
using testing::PngColour;
using testing::PngFile;
using testing::prefix;
using testing::problem;
using testing::with_right_checksums;
using testing::write_file;

const auto kFound = AnyOf(HasSubstr("damaged or truncated"), HasSubstr("begin like neither"));

std::string problem_with(const Bytes& bytes) {
  return problem<DataError>([&] { decode_image(bytes, 3); });
}

// Damaged data are either found or do no harm.
void decode_or_refuse(const Bytes& bytes) {
  try {
    const Image image = decode_image(bytes, 3);
    EXPECT_EQ(image.pixels.size(), static_cast<std::size_t>(image.width * image.height * 3));
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), AnyOf(HasSubstr("damaged or truncated"), HasSubstr("expected an image"),
                                    HasSubstr("begin like neither")));
  }
}

// Varying values over the whole range of `depth` bits.
std::vector<std::uint16_t> noise(std::size_t count, int depth) {
  SplitMix64 random(static_cast<std::uint64_t>(depth));
  std::vector<std::uint16_t> values(count);
  for (std::uint16_t& value : values) {
    value = static_cast<std::uint16_t>(random.below(std::uint64_t{1} << depth));
  }
  return values;
}

std::uint8_t to_8_bits(std::uint16_t value, int depth) {
  return static_cast<std::uint8_t>(std::lround(value * 255.0 / ((1 << depth) - 1)));
}

std::uint8_t luma(std::uint8_t red, std::uint8_t green, std::uint8_t blue) {
  return static_cast<std::uint8_t>(std::lround(0.299 * red + 0.587 * green + 0.114 * blue));
}

// --- PNG ---------------------------------------------------------------------------------------------------

struct PngKind {
  PngColour colour;
  int depth;
};

const std::vector<PngKind> kPngKinds{
    {PngColour::kGrey, 1},    {PngColour::kGrey, 2},       {PngColour::kGrey, 4},
    {PngColour::kGrey, 8},    {PngColour::kGrey, 16},      {PngColour::kRgb, 8},
    {PngColour::kRgb, 16},    {PngColour::kGreyAlpha, 8},  {PngColour::kRgba, 8},
    {PngColour::kRgba, 16},   {PngColour::kGreyAlpha, 16}, {PngColour::kPalette, 1},
    {PngColour::kPalette, 2}, {PngColour::kPalette, 4},    {PngColour::kPalette, 8}};

std::size_t channels_of(PngColour colour) {
  switch (colour) {
    case PngColour::kGreyAlpha:
      return 2;
    case PngColour::kRgb:
      return 3;
    case PngColour::kRgba:
      return 4;
    default:
      return 1;
  }
}

// 13x11 is odd in both dimensions, and larger than a block of the interlaced order.
PngFile png_file(const PngKind& kind, bool interlaced, bool transparent) {
  PngFile file{.width = 13,
               .height = 11,
               .colour = kind.colour,
               .depth = kind.depth,
               .interlaced = interlaced,
               .palette = {},
               .transparency = {},
               .values = noise(std::size_t{13} * 11 * channels_of(kind.colour), kind.depth)};
  if (kind.colour == PngColour::kPalette) {
    for (const std::uint16_t value : noise(std::size_t{3} << kind.depth, 8)) {
      file.palette.push_back(static_cast<std::uint8_t>(value));
    }
  }
  if (transparent) {
    file.transparency = {1};
  }
  return file;
}

// The pixels that the file should have, by the definition of each kind.
Bytes rgb_of(const PngFile& file) {
  Bytes rgb;
  const std::size_t channels = channels_of(file.colour);
  for (std::size_t i = 0; i < file.values.size(); i += channels) {
    for (std::size_t c = 0; c < 3; ++c) {
      if (file.colour == PngColour::kPalette) {
        rgb.push_back(file.palette[std::size_t{3} * file.values[i] + c]);
      } else {
        rgb.push_back(to_8_bits(file.values[i + (channels < 3 ? 0 : c)], file.depth));
      }
    }
  }
  return rgb;
}

Bytes grey_of(const Bytes& rgb) {
  Bytes grey;
  for (std::size_t i = 0; i < rgb.size(); i += 3) {
    grey.push_back(luma(rgb[i], rgb[i + 1], rgb[i + 2]));
  }
  return grey;
}

TEST(DecodeImage, EveryKindOfPngHasItsPixels) {
  for (const PngKind& kind : kPngKinds) {
    for (const bool interlaced : {false, true}) {
      // Only files without an alpha channel can have a transparent colour.
      const bool may_be_transparent = kind.colour != PngColour::kGreyAlpha && kind.colour != PngColour::kRgba;
      for (const bool transparent : {false, may_be_transparent}) {
        SCOPED_TRACE(::testing::Message()
                     << "colour " << static_cast<int>(kind.colour) << " of " << kind.depth << " bits"
                     << (interlaced ? ", interlaced" : "") << (transparent ? ", transparent" : ""));
        const PngFile file = png_file(kind, interlaced, transparent);
        const Bytes bytes = encode(file);
        const Image rgb = decode_image(bytes, 3);
        EXPECT_EQ(rgb.width, 13);
        EXPECT_EQ(rgb.height, 11);
        EXPECT_EQ(rgb.channels, 3);
        EXPECT_EQ(rgb.pixels, rgb_of(file));
        const Image grey = decode_image(bytes, 1);
        EXPECT_EQ(grey.width, 13);
        EXPECT_EQ(grey.height, 11);
        EXPECT_EQ(grey.channels, 1);
        EXPECT_EQ(grey.pixels, grey_of(rgb_of(file)));
      }
    }
  }
}

TEST(DecodeImage, EveryTruncationOfAPngIsFound) {
  for (const PngFile& file :
       {png_file({PngColour::kRgb, 8}, false, false), png_file({PngColour::kPalette, 4}, true, true),
        png_file({PngColour::kGreyAlpha, 16}, true, false)}) {
    const Bytes sound = encode(file);
    for (std::size_t size = 0; size < sound.size(); ++size) {
      EXPECT_THAT(problem_with(prefix(sound, size)), kFound) << size << " bytes";
    }
    decode_image(sound, 3);
  }
}

TEST(DecodeImage, TruncatedPngDataSaySo) {
  const Bytes sound = encode(png_file({PngColour::kRgb, 8}, false, false));
  EXPECT_THAT(problem_with(prefix(sound, sound.size() / 2)),
              AllOf(HasSubstr("damaged or truncated PNG"), HasSubstr("the data end too early")));
}

TEST(DecodeImage, DamageToAPngIsFoundByItsChecksums) {
  const Bytes sound = encode(png_file({PngColour::kRgb, 8}, false, false));
  for (std::size_t at = 0; at < sound.size(); ++at) {
    Bytes damaged = sound;
    damaged[at] ^= 0x10;
    EXPECT_THAT(problem_with(damaged), kFound) << "byte " << at << " flipped";
  }
}

// A file made to attack the decoder has right checksums.
TEST(DecodeImage, DamageToAPngWithRightChecksumsDoesNoHarm) {
  for (const PngFile& file :
       {png_file({PngColour::kRgb, 8}, false, false), png_file({PngColour::kPalette, 4}, true, true)}) {
    const Bytes sound = encode(file);
    for (std::size_t at = 0; at < sound.size(); ++at) {
      for (const std::uint8_t flip : {0x01, 0x04, 0x80}) {
        Bytes damaged = sound;
        damaged[at] ^= flip;
        decode_or_refuse(with_right_checksums(damaged));
      }
    }
  }
}

// --- JPEG --------------------------------------------------------------------------------------------------

// A gradient, which JPEG preserves well. Channel c is `20 + 40 c + 3 x + 2 y`.
Bytes gradient(std::size_t width, std::size_t height, std::size_t channels) {
  Bytes pixels;
  for (std::size_t y = 0; y < height; ++y) {
    for (std::size_t x = 0; x < width; ++x) {
      for (std::size_t c = 0; c < channels; ++c) {
        pixels.push_back(static_cast<std::uint8_t>(20 + 40 * c + 3 * x + 2 * y));
      }
    }
  }
  return pixels;
}

JpegFile jpeg_file(JpegColour colour, bool progressive) {
  std::size_t channels = 4;
  if (colour == JpegColour::kGrey) {
    channels = 1;
  } else if (colour == JpegColour::kRgb) {
    channels = 3;
  }
  return {.width = 21,
          .height = 18,
          .colour = colour,
          .progressive = progressive,
          .pixels = gradient(21, 18, channels)};
}

void expect_near(const Bytes& pixels, const Bytes& expected, int tolerance) {
  ASSERT_EQ(pixels.size(), expected.size());
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    ASSERT_NEAR(pixels[i], expected[i], tolerance) << "value " << i;
  }
}

constexpr int kJpegTolerance = 4;

TEST(DecodeImage, AColourJpegHasItsPixels) {
  for (const bool progressive : {false, true}) {
    const JpegFile file = jpeg_file(JpegColour::kRgb, progressive);
    const Image rgb = decode_image(encode(file), 3);
    EXPECT_EQ(rgb.width, 21);
    EXPECT_EQ(rgb.height, 18);
    expect_near(rgb.pixels, file.pixels, kJpegTolerance);
    expect_near(decode_image(encode(file), 1).pixels, grey_of(file.pixels), kJpegTolerance);
  }
}

TEST(DecodeImage, AGreyJpegHasItsPixels) {
  const JpegFile file = jpeg_file(JpegColour::kGrey, false);
  expect_near(decode_image(encode(file), 1).pixels, file.pixels, kJpegTolerance);
  Bytes rgb;
  for (const std::uint8_t pixel : file.pixels) {
    rgb.insert(rgb.end(), 3, pixel);
  }
  expect_near(decode_image(encode(file), 3).pixels, rgb, kJpegTolerance);
}

// ImageNet has some images in CMYK.
TEST(DecodeImage, InkBecomesColour) {
  for (const bool stores_white : {false, true}) {
    const JpegFile file = jpeg_file(stores_white ? JpegColour::kYcck : JpegColour::kCmyk, false);
    Bytes rgb;
    for (std::size_t i = 0; i < file.pixels.size(); i += 4) {
      for (std::size_t c = 0; c < 3; ++c) {
        const int colour = stores_white ? file.pixels[i + c] : 255 - file.pixels[i + c];
        const int black = stores_white ? file.pixels[i + 3] : 255 - file.pixels[i + 3];
        rgb.push_back(static_cast<std::uint8_t>(colour * black / 255));
      }
    }
    expect_near(decode_image(encode(file), 3).pixels, rgb, kJpegTolerance + 2);
  }
}

TEST(DecodeImage, EveryTruncationOfAJpegIsFound) {
  for (const JpegFile& file : {jpeg_file(JpegColour::kRgb, false), jpeg_file(JpegColour::kRgb, true),
                               jpeg_file(JpegColour::kGrey, false), jpeg_file(JpegColour::kYcck, false)}) {
    const Bytes sound = encode(file);
    for (std::size_t size = 0; size < sound.size(); ++size) {
      EXPECT_THAT(problem_with(prefix(sound, size)), kFound) << size << " bytes";
    }
    decode_image(sound, 3);
  }
}

// The position of the first `beginning`.
std::size_t place_of(const Bytes& bytes, const Bytes& beginning) {
  const auto found = std::search(bytes.begin(), bytes.end(), beginning.begin(), beginning.end());
  EXPECT_NE(found, bytes.end());
  return static_cast<std::size_t>(found - bytes.begin());
}

// Regression: every warning of libjpeg ended in an error, although public data sets have files with such
// oddities.
TEST(DecodeImage, StrayBytesBeforeAMarkerOfAJpegDoNotMatter) {
  const Bytes stray{0x00, 0x2a, 0x00};
  for (const bool progressive : {false, true}) {
    const Bytes clean = encode(jpeg_file(JpegColour::kRgb, progressive));
    const Bytes pixels = decode_image(clean, 3).pixels;
    for (const std::size_t marker : {place_of(clean, {0xff, 0xdb}), clean.size() - 2}) {
      Bytes odd = clean;
      odd.insert(odd.begin() + static_cast<std::ptrdiff_t>(marker), stray.begin(), stray.end());
      EXPECT_EQ(decode_image(odd, 3).pixels, pixels) << "before the marker at " << marker;
    }
  }
}

TEST(DecodeImage, HeaderFieldsOfAJpegThatNobodyNeedsDoNotMatter) {
  const Bytes clean = encode(jpeg_file(JpegColour::kRgb, false));
  const Bytes pixels = decode_image(clean, 3).pixels;
  Bytes odd = clean;
  odd[place_of(clean, {'J', 'F', 'I', 'F'}) + 5] = 7;  // revision 7
  EXPECT_EQ(decode_image(odd, 3).pixels, pixels);
  odd = clean;
  odd[place_of(clean, {0xff, 0xda}) + 12] = 20;  // the last coefficient of a scan, which is always 63
  EXPECT_EQ(decode_image(odd, 3).pixels, pixels);
}

TEST(DecodeImage, TruncatedJpegDataSaySo) {
  const Bytes sound = encode(jpeg_file(JpegColour::kRgb, false));
  EXPECT_THAT(problem_with(prefix(sound, sound.size() - 10)),
              AllOf(HasSubstr("damaged or truncated JPEG"), HasSubstr("Premature end")));
}

TEST(DecodeImage, DamageToAJpegDoesNoHarm) {
  for (const bool progressive : {false, true}) {
    const Bytes sound = encode(jpeg_file(JpegColour::kRgb, progressive));
    for (std::size_t at = 0; at < sound.size(); ++at) {
      for (const std::uint8_t flip : {0x01, 0x08, 0xff}) {
        Bytes damaged = sound;
        damaged[at] ^= flip;
        decode_or_refuse(damaged);
      }
    }
  }
}

// --- either ------------------------------------------------------------------------------------------------

Bytes with_extents(Bytes bytes, std::size_t at, const Bytes& extents) {
  std::ranges::copy(extents, bytes.begin() + static_cast<std::ptrdiff_t>(at));
  return bytes;
}

TEST(DecodeImage, AHeaderThatClaimsGigabytesIsRefused) {
  const auto expectation = AllOf(HasSubstr("at most 134217728"), HasSubstr("found 60000x60000"));
  constexpr std::size_t kPngWidth = 16;  // after the signature, length and type of the header
  const Bytes png = encode(png_file({PngColour::kRgb, 8}, true, false));
  EXPECT_THAT(
      problem_with(with_right_checksums(with_extents(png, kPngWidth, {0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60}))),
      expectation);

  for (const bool progressive : {false, true}) {
    const Bytes jpeg = encode(jpeg_file(JpegColour::kRgb, progressive));
    const Bytes frame{0xff, static_cast<std::uint8_t>(progressive ? 0xc2 : 0xc0)};
    EXPECT_THAT(problem_with(with_extents(jpeg, place_of(jpeg, frame) + 5, {0xea, 0x60, 0xea, 0x60})),
                expectation);
  }
}

TEST(DecodeImage, WhatIsNoImageIsRefused) {
  EXPECT_THAT(problem_with({}), AllOf(HasSubstr("JPEG or PNG"), HasSubstr("found 0 bytes")));
  EXPECT_THAT(problem_with({'G', 'I', 'F', '8'}), HasSubstr("found 4 bytes"));
}

// --- files -------------------------------------------------------------------------------------------------

class ImageFileTest : public testing::TemporaryDirectory {
 protected:
  std::string problem_with_file(const std::string& name) const {
    return problem<DataError>([&] { read_image_file(directory_ / name, 3); });
  }
};

TEST_F(ImageFileTest, TheNameDoesNotMatter) {
  const PngFile png = png_file({PngColour::kRgb, 8}, false, false);
  write_file(directory_ / "image.jpg", encode(png));
  EXPECT_EQ(read_image_file(directory_ / "image.jpg", 3).pixels, rgb_of(png));
  const JpegFile jpeg = jpeg_file(JpegColour::kGrey, false);
  write_file(directory_ / "image.png", encode(jpeg));
  EXPECT_EQ(read_image_file(directory_ / "image.png", 1).pixels, decode_image(encode(jpeg), 1).pixels);
}

TEST_F(ImageFileTest, ADamagedFileIsNamed) {
  for (const Bytes& sound : {encode(png_file({PngColour::kRgb, 8}, false, false)),
                             encode(jpeg_file(JpegColour::kRgb, false)), Bytes{'G', 'I', 'F', '8'}}) {
    write_file(directory_ / "image", prefix(sound, sound.size() - 1));
    EXPECT_THAT(problem_with_file("image"), HasSubstr("'" + (directory_ / "image").string() + "': "));
  }
}

TEST_F(ImageFileTest, WhatIsNoFileIsRefused) {
  EXPECT_THAT(problem_with_file("none.png"), AllOf(HasSubstr("none.png"), HasSubstr("No such file")));
  EXPECT_THAT(problem_with_file("."),
              AllOf(HasSubstr(directory_.string()), HasSubstr("expected a file, found a directory")));
}

// Opening the pipe would wait for a writer that never opens it.
TEST_F(ImageFileTest, APipeIsRefused) {
  ASSERT_EQ(mkfifo((directory_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(problem_with_file("pipe"), HasSubstr("expected a file"));
}

// --- cropping and scaling ----------------------------------------------------------------------------------

Image random_image(std::int64_t width, std::int64_t height, std::int64_t channels, std::uint64_t seed) {
  Image image = make_image(static_cast<std::uint64_t>(width), static_cast<std::uint64_t>(height), channels);
  SplitMix64 random(seed);
  for (std::uint8_t& pixel : image.pixels) {
    pixel = static_cast<std::uint8_t>(random.below(256));
  }
  return image;
}

std::vector<float> scaled(const Image& image, std::int64_t height, std::int64_t width) {
  std::vector<float> brightness(static_cast<std::size_t>(height * width * image.channels), -1);
  crop_and_scale(image, height, width, brightness);
  return brightness;
}

TEST(CropAndScale, KeepsWhatHasTheSizeAlready) {
  for (const auto& [width, height] : {std::pair{1, 1}, {7, 5}, {5, 7}, {224, 224}, {32, 1}}) {
    const Image image = random_image(width, height, 3, 1);
    const std::vector<float> brightness = scaled(image, height, width);
    for (std::size_t i = 0; i < brightness.size(); ++i) {
      ASSERT_EQ(brightness[i], static_cast<float>(image.pixels[i]) / 255.0F) << i;
    }
  }
}

// At half the size, every new centre is midway between two pixels. At twice the size, centres are at a
// quarter and three quarters of the way, and the border is repeated.
TEST(CropAndScale, CentresLieAtHalves) {
  Image line = make_image(4, 1, 1);
  line.pixels = {0, 255, 51, 102};
  Image square = make_image(4, 4, 1);
  for (std::size_t i = 0; i < 16; ++i) {
    square.pixels[i] = line.pixels[i % 4];
  }
  EXPECT_EQ(scaled(square, 2, 2), (std::vector<float>{0.5F, 0.3F, 0.5F, 0.3F}));
  Image two = make_image(2, 2, 1);
  two.pixels = {0, 255, 0, 255};
  const std::vector<float> row{0, 0.25F, 0.75F, 1};
  std::vector<float> four;
  for (int i = 0; i < 4; ++i) {
    four.insert(four.end(), row.begin(), row.end());
  }
  EXPECT_EQ(scaled(two, 4, 4), four);
}

TEST(CropAndScale, TakesTheCentre) {
  Image wide = make_image(7, 1, 1);
  wide.pixels = {1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(scaled(wide, 1, 1), (std::vector<float>{4 / 255.0F}));
  EXPECT_EQ(scaled(wide, 1, 3), (std::vector<float>{3 / 255.0F, 4 / 255.0F, 5 / 255.0F}));
  Image tall = make_image(1, 7, 1);
  tall.pixels = wide.pixels;
  EXPECT_EQ(scaled(tall, 3, 1), (std::vector<float>{3 / 255.0F, 4 / 255.0F, 5 / 255.0F}));
}

// Bilinear interpolation as in textbooks.
double reference(const Image& image, double y, double x, std::int64_t c) {
  const auto at = [&](double row, double column) {
    const auto i = std::clamp<std::int64_t>(static_cast<std::int64_t>(row), 0, image.height - 1);
    const auto j = std::clamp<std::int64_t>(static_cast<std::int64_t>(column), 0, image.width - 1);
    return image.pixels[static_cast<std::size_t>((i * image.width + j) * image.channels + c)] / 255.0;
  };
  y = std::clamp(y, 0.0, static_cast<double>(image.height - 1));
  x = std::clamp(x, 0.0, static_cast<double>(image.width - 1));
  const double top = std::floor(y);
  const double left = std::floor(x);
  return (at(top, left) * (1 - (x - left)) + at(top, left + 1) * (x - left)) * (1 - (y - top)) +
         (at(top + 1, left) * (1 - (x - left)) + at(top + 1, left + 1) * (x - left)) * (y - top);
}

// Images and results have the same shape, so nothing is cropped.
TEST(CropAndScale, InterpolatesBetweenFourPixels) {
  for (const std::int64_t factor : {1, 2, 3, 5, 8}) {
    for (const std::int64_t size : {1, 2, 3, 4, 7, 30}) {
      for (const std::int64_t channels : {1, 3}) {
        const Image image = random_image(3 * factor, 2 * factor, channels, static_cast<std::uint64_t>(size));
        const std::vector<float> brightness = scaled(image, 2 * size, 3 * size);
        const double ratio = static_cast<double>(factor) / static_cast<double>(size);
        std::size_t i = 0;
        for (std::int64_t y = 0; y < 2 * size; ++y) {
          for (std::int64_t x = 0; x < 3 * size; ++x) {
            for (std::int64_t c = 0; c < channels; ++c, ++i) {
              ASSERT_NEAR(brightness[i],
                          reference(image, (static_cast<double>(y) + 0.5) * ratio - 0.5,
                                    (static_cast<double>(x) + 0.5) * ratio - 0.5, c),
                          1e-6)
                  << "size " << size << " from " << factor << ", value " << i;
            }
          }
        }
      }
    }
  }
}

TEST(CropAndScale, AnyShapeBecomesAnyOther) {
  for (const std::int64_t width : {1, 2, 9, 50}) {
    for (const std::int64_t height : {1, 3, 50}) {
      for (const std::int64_t to_width : {1, 4, 31}) {
        for (const std::int64_t to_height : {1, 5, 40}) {
          Image image = make_image(static_cast<std::uint64_t>(width), static_cast<std::uint64_t>(height), 1);
          std::ranges::fill(image.pixels, std::uint8_t{51});
          EXPECT_THAT(scaled(image, to_height, to_width), ::testing::Each(0.2F));
        }
      }
    }
  }
}

}  // namespace
}  // namespace vdnn::image_file_test
