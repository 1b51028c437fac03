// Event files, read back by the test's own reader, which shares no code with the writer.

#include "src/report/tensorboard_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/temporary_directory.h"
#include "vdnn/error.h"

namespace vdnn::tensorboard_events_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// The CRC by its definition, bit by bit: the remainder of the reflected message when divided by the
// polynomial 0x1EDC6F41.
std::uint32_t crc_by_division(const std::string& data) {
  std::uint32_t remainder = 0xFFFFFFFF;
  for (const char each : data) {
    for (int bit = 0; bit < 8; ++bit) {  // the lowest first
      const std::uint32_t in = static_cast<unsigned char>(each) >> bit & 1;
      const bool out = (remainder >> 31 ^ in) != 0;
      remainder = remainder << 1 ^ (out ? 0x1EDC6F41 : 0);
    }
  }
  std::uint32_t reflected = 0;
  for (int bit = 0; bit < 32; ++bit) {
    reflected |= (remainder >> bit & 1) << (31 - bit);
  }
  return ~reflected;
}

template <class Number>
Number number_at(const std::string& bytes, std::size_t at) {
  Number number{};
  if (at + sizeof(number) > bytes.size()) {
    throw std::out_of_range("a number is cut off");
  }
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

std::uint32_t unmasked(std::uint32_t masked) {
  const std::uint32_t rotated = masked - 0xA282EAD8;
  return rotated >> 17 | rotated << 15;
}

// Checks the checksums and returns the data of each record.
std::vector<std::string> records_of(const std::string& file) {
  std::vector<std::string> records;
  for (std::size_t at = 0; at < file.size();) {
    const auto length = number_at<std::uint64_t>(file, at);
    EXPECT_EQ(unmasked(number_at<std::uint32_t>(file, at + 8)), crc_by_division(file.substr(at, 8)));
    records.push_back(file.substr(at + 12, length));
    EXPECT_EQ(records.back().size(), length);
    EXPECT_EQ(unmasked(number_at<std::uint32_t>(file, at + 12 + length)), crc_by_division(records.back()));
    at += 16 + length;
  }
  return records;
}

// A field of a message: its id and its bytes; a numeric field has eight bytes.
using Field = std::pair<std::uint64_t, std::string>;

std::vector<Field> fields_of(const std::string& message) {
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) {
        return value;
      }
    }
  };
  std::vector<Field> fields;
  while (at < message.size()) {
    const std::uint64_t key = varint();
    std::size_t size = 0;
    switch (key & 7) {
      case 0: {
        const std::uint64_t value = varint();
        fields.emplace_back(key >> 3, std::string(reinterpret_cast<const char*>(&value), sizeof(value)));
        continue;
      }
      case 1:
        size = 8;
        break;
      case 2:
        size = varint();
        break;
      case 5:
        size = 4;
        break;
      default:
        throw std::invalid_argument("a wire type that there is not");
    }
    fields.emplace_back(key >> 3, message.substr(at, size));
    at += size;
  }
  return fields;
}

template <class Number>
std::string bits(Number value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

class EventFileTest : public testing::TemporaryDirectory {
 protected:
  std::string text(const EventFile& file) const { return read(file.path().filename()); }
  // The error of check_event_folder().
  static std::string refusal(const fs::path& folder) {
    try {
      check_event_folder(folder);
      return "none";
    } catch (const InvalidArgument& error) {
      return error.what();
    }
  }
};

// The check value of the CRC's definition, and a vector of RFC 3720.
TEST(Crc32c, IsThatOfIscsi) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AA);
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc_by_division("123456789"), 0xE3069283);
  EXPECT_EQ(unmasked(masked_crc32c("123456789")), 0xE3069283);
}

TEST_F(EventFileTest, BeginsWithItsVersionAndTheStartOfASession) {
  const EventFile file(directory_, 300, [] { return 1.5; });
  const std::vector<std::string> records = records_of(text(file));
  ASSERT_EQ(records.size(), 2U);
  const std::string time = bits(1.5);
  EXPECT_EQ(fields_of(records[0]), (std::vector<Field>{{1, time}, {3, "brain.Event:2"}}));
  const std::vector<Field> start = fields_of(records[1]);
  ASSERT_EQ(start.size(), 3U);
  EXPECT_EQ(start[0], Field(1, time));
  EXPECT_EQ(start[1], Field(2, bits(std::uint64_t{300})));
  EXPECT_EQ(start[2].first, 7U);
  EXPECT_EQ(fields_of(start[2].second), (std::vector<Field>{{1, bits(std::uint64_t{1})}}));
}

TEST_F(EventFileTest, HasAnEventWithAllScalarsOfAStep) {
  double now = 100;
  EventFile file(directory_, 1, [&] { return ++now; });
  const std::vector<std::pair<std::uint64_t, std::array<ScalarEvent, 2>>> steps{
      {1, {{{.tag = "loss", .value = 2.25}, {.tag = "peak_bytes", .value = 1e9}}}},
      {300, {{{.tag = "loss", .value = std::numeric_limits<double>::infinity()}, {.tag = "x", .value = -1}}}},
      {std::uint64_t{1} << 40,
       {{{.tag = "", .value = 0}, {.tag = std::string_view("long tag / _"), .value = 3}}}}};
  for (const auto& [step, scalars] : steps) {
    file.add(step, scalars);
  }
  const std::vector<std::string> records = records_of(text(file));
  ASSERT_EQ(records.size(), 2 + steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::vector<Field> event = fields_of(records[i + 2]);
    ASSERT_EQ(event.size(), 3U);
    EXPECT_EQ(event[0].first, 1U);
    EXPECT_EQ(number_at<double>(event[0].second, 0), 102 + static_cast<double>(i));
    EXPECT_EQ(event[1].first, 2U);
    EXPECT_EQ(number_at<std::uint64_t>(event[1].second, 0), steps[i].first);
    EXPECT_EQ(event[2].first, 5U);
    const std::vector<Field> values = fields_of(event[2].second);
    ASSERT_EQ(values.size(), 2U);
    for (std::size_t j = 0; j < 2; ++j) {
      EXPECT_EQ(values[j].first, 1U);
      const ScalarEvent& scalar = steps[i].second[j];
      EXPECT_EQ(
          fields_of(values[j].second),
          (std::vector<Field>{{1, std::string(scalar.tag)}, {2, bits(static_cast<float>(scalar.value))}}));
    }
  }
}

TEST_F(EventFileTest, OfOneProcessAndSecondHaveNamesOfTheirOwn) {
  const auto now = [] { return 7.0; };
  const EventFile first(directory_ / "a/b", 1, now);
  const EventFile second(directory_ / "a/b", 1, now);
  EXPECT_NE(first.path(), second.path());
  for (const EventFile* file : {&first, &second}) {
    EXPECT_EQ(file->path().parent_path(), directory_ / "a/b");
    EXPECT_THAT(file->path().filename().string(), ::testing::StartsWith("events.out.tfevents.7."));
    EXPECT_TRUE(fs::exists(file->path()));
  }
}

TEST_F(EventFileTest, NeedsAFolderThatCanBeWritten) {
  write("file", "in the way");
  for (const std::string folder : {"file", "file/below"}) {
    EXPECT_THAT(refusal(directory_ / folder), HasSubstr((directory_ / folder).string()));
  }
  EXPECT_EQ(read("file"), "in the way");
  check_event_folder(directory_ / "new");
  EXPECT_TRUE(fs::is_empty(directory_ / "new"));
}

// For names that are too long, the standard library throws exceptions of its own.
TEST_F(EventFileTest, NeedsAFolderWhoseNameIsNotTooLong) {
  const std::string reason = std::strerror(ENAMETOOLONG);
  EXPECT_THAT(refusal(directory_ / std::string(NAME_MAX + 1, 'x')), HasSubstr(reason));
  fs::path folder = directory_;
  while (folder.string().size() < PATH_MAX - 24) {  // too long for a file name to be appended
    const std::size_t most = std::min<std::size_t>(NAME_MAX, PATH_MAX - 2 - folder.string().size());
    folder /= std::string(most, 'x');
  }
  EXPECT_THAT(refusal(folder), HasSubstr(reason));
}

}  // namespace
}  // namespace vdnn::tensorboard_events_test
