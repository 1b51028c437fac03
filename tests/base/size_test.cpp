#include "vdnn/size.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace vdnn {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

TEST(CheckedArithmetic, GivesExactResultsUpToTheLastBit) {
  EXPECT_EQ(checked_multiply(0, kMost), 0U);
  EXPECT_EQ(checked_multiply(1ULL << 32, (1ULL << 32) - 1), kMost - ((1ULL << 32) - 1));
  EXPECT_EQ(checked_add(kMost - 1, 1), kMost);
}

TEST(CheckedArithmetic, RefusesWhatDoesNotFitAndNamesTheOperands) {
  EXPECT_THROW(checked_multiply(1ULL << 32, 1ULL << 32), InvalidArgument);
  EXPECT_THROW(checked_add(kMost, 1), InvalidArgument);
  try {
    checked_multiply(kMost, 3);
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(kMost) + " x 3"), std::string::npos)
        << error.what();
  }
}

TEST(RoundUp, GivesTheNextMultiple) {
  EXPECT_EQ(round_up(0, 256), 0U);
  EXPECT_EQ(round_up(1, 256), 256U);
  EXPECT_EQ(round_up(256, 256), 256U);
  EXPECT_EQ(round_up(257, 256), 512U);
  EXPECT_EQ(round_up(10, 3), 12U);
  EXPECT_EQ(round_up(kMost, 1), kMost);
  EXPECT_EQ(round_up(kMost, 5), kMost);  // 2^64 - 1 is a multiple of 5
  EXPECT_THROW(round_up(kMost, 2), InvalidArgument);
}

TEST(ParseSize, ReadsBothNotationsAndBareBytes) {
  const std::vector<std::pair<std::string, std::uint64_t>> sizes{
      {"0", 0},
      {"4096", 4096},
      {"1KiB", 1ULL << 10},
      {"512MiB", 512ULL << 20},
      {"12GiB", 12ULL << 30},
      {"2TiB", 2ULL << 40},
      {"3KB", 3'000},
      {"5MB", 5'000'000},
      {"12GB", 12'000'000'000},
      {"2TB", 2'000'000'000'000},
      {"1K", 1ULL << 10},
      {"10M", 10ULL << 20},
      {"24G", 24ULL << 30},
      {"1.5T", 3ULL << 39},
      {"1.5GiB", 3ULL << 29},
      {"0.25KiB", 256},
      {"2.0", 2},
      {"007KiB", 7ULL << 10},
      {"18446744073709551615", kMost},
      {"16777215.9999999999990905052982270717620849609375TiB", kMost},
  };
  for (const auto& [text, bytes] : sizes) {
    EXPECT_EQ(parse_size(text), bytes) << text;
  }
}

// Regression: parsing used floating point. 1.001KB was refused, since 1.001 * 1000 is not 1001 there, and
// 9007199254740993.0 lost its last bit.
TEST(ParseSize, ReadsFractionsExactly) {
  EXPECT_EQ(parse_size("1.001KB"), 1001U);
  EXPECT_EQ(parse_size("9007199254740993.0"), 9007199254740993U);
  EXPECT_EQ(parse_size("9007199254740.993KB"), 9007199254740993U);
  EXPECT_THROW(parse_size("1.0000000000000000000001KiB"), InvalidArgument);
}

TEST(ParseSize, RefusesEverythingElseAndShowsTheForms) {
  const std::vector<std::string> texts{
      "",       "MiB",  "-1",    "+1", " 1", "1 ",    "1 MiB", "1mib",   "1m",    "1Mi",
      "1e9",    "0x10", "1.2.3", ".",  "1.", ".5GiB", "1.5",   "0.1KiB", "1KiBs", "18446744073709551616",
      "1,5GiB", "12PiB"};
  for (const std::string& text : texts) {
    try {
      parse_size(text);
      ADD_FAILURE() << "accepted '" << text << "'";
    } catch (const InvalidArgument& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find("'" + text + "'"), std::string::npos) << message;
      EXPECT_NE(message.find("512MiB"), std::string::npos) << message;
    }
  }
}

TEST(ParseSize, RefusesWhatDoesNotFitInto64Bits) {
  EXPECT_THROW(parse_size("16777216TiB"), InvalidArgument);
  EXPECT_THROW(parse_size("18446744073709551.616KB"), InvalidArgument);
}

TEST(FormatSize, IsForPeopleAndExact) {
  EXPECT_EQ(format_size(0), "0 bytes");
  EXPECT_EQ(format_size(12), "12 bytes");
  EXPECT_EQ(format_size(1023), "1023 bytes");
  EXPECT_EQ(format_size(1024), "1 KiB (1024 bytes)");
  EXPECT_EQ(format_size(65536), "64 KiB (65536 bytes)");
  EXPECT_EQ(format_size(25690112), "24.5 MiB (25690112 bytes)");
  EXPECT_EQ(format_size(12ULL << 30), "12 GiB (12884901888 bytes)");
  EXPECT_EQ(format_size(3ULL << 40), "3 TiB (3298534883328 bytes)");
}

TEST(FormatSize, IsReadBackByItsBytes) {
  for (const std::uint64_t bytes : {std::uint64_t{5000}, std::uint64_t{1} << 45, kMost}) {
    const std::string text = format_size(bytes);
    const std::size_t begin = text.find('(') + 1;
    EXPECT_EQ(parse_size(text.substr(begin, text.find(' ', begin) - begin)), bytes) << text;
  }
}

TEST(ExactSize, IsTheShortestTextThatIsReadBack) {
  EXPECT_EQ(exact_size(0), "0");
  EXPECT_EQ(exact_size(4097), "4097");
  EXPECT_EQ(exact_size(65536), "64KiB");
  EXPECT_EQ(exact_size(9ULL << 20), "9MiB");
  EXPECT_EQ(exact_size(10304ULL << 10), "10304KiB") << "and not 10551296, which is as short";
  EXPECT_EQ(exact_size(12'000'000'000), "12GB");
  EXPECT_EQ(exact_size(12ULL << 30), "12GiB");
  for (const std::uint64_t bytes :
       {std::uint64_t{999}, std::uint64_t{1'500'000}, std::uint64_t{3} << 45, kMost}) {
    EXPECT_EQ(parse_size(exact_size(bytes)), bytes);
  }
}

}  // namespace
}  // namespace vdnn
