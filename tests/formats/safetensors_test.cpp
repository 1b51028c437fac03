#include "vdnn/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/base/random.h"
#include "tests/temporary_directory.h"
#include "vdnn/error.h"
#include "vdnn/sha256.h"

namespace vdnn {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Bytes = std::vector<std::byte>;
using SafetensorsTest = vdnn::testing::TemporaryDirectory;

// Contents that differ at each position and for each tensor.
Bytes pattern(const SafetensorsTensor& tensor, std::uint64_t seed) {
  SplitMix64 random(seed);
  Bytes bytes(tensor.bytes());
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random.next()); });
  return bytes;
}

// The tensors cover each data type, a scalar, an empty name, a name that JSON must escape, five dimensions,
// no data at all, and an odd number of bytes before wider elements.
const std::vector<SafetensorsTensor> kTensors{
    {.name = "conv1.weight", .data_type = DataType::kF32, .dims = {2, 3, 1, 2, 2}},
    {.name = "", .data_type = DataType::kI32, .dims = {3}},
    {.name = "scalar", .data_type = DataType::kF32, .dims = {}},
    {.name = "quote \" backslash \\ line\n \u00fc \u4e2d", .data_type = DataType::kU8, .dims = {5}},
    {.name = "none", .data_type = DataType::kF32, .dims = {0, 7}},
    {.name = "half", .data_type = DataType::kF16, .dims = {3, 2}},
    {.name = "last", .data_type = DataType::kI32, .dims = {1, 2}}};
const SafetensorsMetadata kMetadata{{"step", "12345678901234"}, {"", "empty"}, {"text", "a \"b\"\n\u00fc"}};

void write_file(const fs::path& path, const std::vector<SafetensorsTensor>& tensors,
                const SafetensorsMetadata& metadata) {
  SafetensorsWriter writer(path, tensors, metadata);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    writer.write(pattern(tensors[i], i));
  }
  writer.commit();
}

Bytes read_tensor(const SafetensorsFile& file, const SafetensorsTensor& tensor) {
  Bytes bytes(tensor.bytes());
  file.read(tensor.name, bytes);
  return bytes;
}

// A file made of these parts, whether or not they are consistent.
std::string raw_file(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string text(sizeof(length), '\0');
  std::memcpy(text.data(), &length, sizeof(length));
  return text + header + std::string(data_bytes, 'd');
}

std::string rejection_of(const fs::path& path) {
  try {
    const SafetensorsFile file(path);
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr(path.string()));
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

// --- written files are read --------------------------------------------------------------------------------

TEST_F(SafetensorsTest, ReadsWhatWasWritten) {
  const fs::path path = directory_ / "file";
  write_file(path, kTensors, kMetadata);
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata(), kMetadata);
  EXPECT_EQ(file.tensors(), kTensors);
  for (std::size_t i = 0; i < kTensors.size(); ++i) {
    EXPECT_EQ(read_tensor(file, kTensors[i]), pattern(kTensors[i], i)) << kTensors[i].name;
  }
}

TEST_F(SafetensorsTest, WritesTheFormatByTheLetter) {
  const fs::path path = directory_ / "file";
  SafetensorsWriter writer(path, {{.name = "a", .data_type = DataType::kU8, .dims = {2, 1}}},
                           {{"k", "padded"}});
  writer.write(Bytes{std::byte{'x'}, std::byte{'y'}});
  writer.commit();
  const std::string header =
      R"({"__metadata__":{"k":"padded"},"a":{"dtype":"U8","shape":[2,1],"data_offsets":[0,2]}})";
  const std::string padding((8 - header.size() % 8) % 8, ' ');
  EXPECT_NE(padding, "") << "the case must have padding";
  EXPECT_EQ(read("file"), raw_file(header + padding, 0) + "xy");
}

TEST_F(SafetensorsTest, AFileWithoutTensorsIsFine) {
  write_file(directory_ / "file", {}, {});
  EXPECT_EQ(read("file"), raw_file("{}      ", 0));
  const SafetensorsFile file(directory_ / "file");
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_TRUE(file.metadata().empty());
}

TEST_F(SafetensorsTest, PiecesMakeTheSameFile) {
  write_file(directory_ / "whole", kTensors, kMetadata);
  SafetensorsWriter writer(directory_ / "pieces", kTensors, kMetadata);
  for (std::size_t i = 0; i < kTensors.size(); ++i) {
    const Bytes bytes = pattern(kTensors[i], i);
    writer.write({});
    for (std::size_t begin = 0; begin < bytes.size(); begin += 3) {
      writer.write(std::span(bytes).subspan(begin, std::min<std::size_t>(3, bytes.size() - begin)));
    }
  }
  writer.commit();
  EXPECT_EQ(read("pieces"), read("whole"));
}

TEST_F(SafetensorsTest, FindsByName) {
  write_file(directory_ / "file", kTensors, {});
  SafetensorsFile file(directory_ / "file");
  ASSERT_NE(file.find("last"), nullptr);
  EXPECT_EQ(*file.find("last"), kTensors.back());
  EXPECT_EQ(file.find("Last"), nullptr);
  const SafetensorsFile moved = std::move(file);
  EXPECT_EQ(read_tensor(moved, kTensors[0]), pattern(kTensors[0], 0));
}

TEST_F(SafetensorsTest, ReadingRefusesOtherNamesAndSizes) {
  write_file(directory_ / "file", kTensors, {});
  const SafetensorsFile file(directory_ / "file");
  Bytes buffer(9);
  EXPECT_THROW(file.read("last", buffer), InvalidArgument);
  EXPECT_THROW(file.read("last", std::span(buffer).first(7)), InvalidArgument);
  EXPECT_THROW(file.read("missing", buffer), DataError);
}

TEST_F(SafetensorsTest, AFileThatShrinksIsAnError) {
  const fs::path path = directory_ / "file";
  write_file(path, kTensors, {});
  const SafetensorsFile file(path);
  fs::resize_file(path, fs::file_size(path) - 1);
  EXPECT_EQ(read_tensor(file, kTensors[0]), pattern(kTensors[0], 0));
  Bytes buffer(kTensors.back().bytes());
  try {
    file.read("last", buffer);
    ADD_FAILURE() << "read past the end";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(path.string()), HasSubstr("became shorter")));
  }
}

TEST_F(SafetensorsTest, ForeignHeadersMayBeSpacedEscapedAndInAnyOrder) {
  write("file", raw_file("{\"b\" : {\"data_offsets\":[4, 6],\"shape\":[2],\n\"dtype\":\"U8\"},"
                         "\"\\u0061\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}, "
                         "\"__metadata__\":{}}",
                         6));
  const SafetensorsFile file(directory_ / "file");
  EXPECT_EQ(file.tensors(),
            (std::vector<SafetensorsTensor>{{.name = "a", .data_type = DataType::kF32, .dims = {}},
                                            {.name = "b", .data_type = DataType::kU8, .dims = {2}}}));
}

// --- the writer refuses ------------------------------------------------------------------------------------

TEST_F(SafetensorsTest, WriterRefusesWhatTheFormatCannotSay) {
  const fs::path path = directory_ / "file";
  const auto with = [&](const std::vector<SafetensorsTensor>& tensors,
                        const SafetensorsMetadata& metadata = {}) {
    SafetensorsWriter(path, tensors, metadata);
  };
  const std::int64_t large = std::int64_t{1} << 62;
  EXPECT_THROW(with({{.name = "a"}, {.name = "a"}}), InvalidArgument);
  EXPECT_THROW(with({{.name = "__metadata__"}}), InvalidArgument);
  EXPECT_THROW(with({{.name = "\xff"}}), InvalidArgument);
  EXPECT_THROW(with({}, {{"\xff", ""}}), InvalidArgument);
  EXPECT_THROW(with({}, {{"", "\xc3"}}), InvalidArgument);
  EXPECT_THROW(with({{.name = "a", .dims = {-1}}}), InvalidArgument);
  EXPECT_THROW(with({{.name = "a", .dims = {large}}}), InvalidArgument);
  EXPECT_THROW(with({{.name = "a", .dims = {large / 2, 0, 4}}, {.name = "b", .dims = {large / 2, 4}}}),
               InvalidArgument);
  EXPECT_THROW(with({{.name = "a", .dims = {large / 2}}, {.name = "b", .dims = {large / 2}}}),
               InvalidArgument)
      << "each tensor fits into 64 bits, but their sum does not";
  EXPECT_THROW(with({{.name = "a", .dims = Dims(65, 1)}}), InvalidArgument);
  EXPECT_THROW(with({}, {{"", std::string(kLargestSafetensorsHeader, 'x')}}), InvalidArgument);
  EXPECT_THROW(with({{.name = "a", .data_type = static_cast<DataType>(200)}}), InvalidArgument);
  EXPECT_TRUE(empty());
}

TEST_F(SafetensorsTest, WriterRefusesMoreAndFewerBytes) {
  const fs::path path = directory_ / "file";
  const std::vector<SafetensorsTensor> two{{.name = "first", .data_type = DataType::kU8, .dims = {4}},
                                           {.name = "second", .data_type = DataType::kU8, .dims = {4}}};
  {
    SafetensorsWriter writer(path, two);
    EXPECT_THROW(writer.write(Bytes(5)), InvalidArgument) << "a piece runs into the next tensor";
    writer.write(Bytes(3));
    EXPECT_THROW(writer.write(Bytes(2)), InvalidArgument);
    EXPECT_THROW(writer.commit(), InvalidArgument);
    writer.write(Bytes(1));
    EXPECT_THROW(writer.commit(), InvalidArgument);
    writer.write(Bytes(4));
    EXPECT_THROW(writer.write(Bytes(1)), InvalidArgument);
    writer.commit();
    EXPECT_THROW(writer.commit(), InvalidArgument);
  }
  EXPECT_EQ(SafetensorsFile(path).tensors(), two) << "refused tensors left no trace";
}

TEST_F(SafetensorsTest, WithoutCommitThePreviousFileStays) {
  write("file", "before");
  { SafetensorsWriter(directory_ / "file", {{.name = "a", .dims = {1}}}).write(Bytes(4)); }
  EXPECT_EQ(read("file"), "before");
}

TEST_F(SafetensorsTest, WriterReportsWhereItCannotWrite) {
  EXPECT_THROW(SafetensorsWriter(directory_ / "missing" / "file", {}), DataError);
  EXPECT_THROW(SafetensorsWriter(directory_, {}), DataError);
}

// --- false headers -----------------------------------------------------------------------------------------

TEST_F(SafetensorsTest, RefusesWhatIsNoFile) {
  EXPECT_THAT(rejection_of(directory_ / "missing"), HasSubstr("No such file"));
  EXPECT_THAT(rejection_of(directory_), HasSubstr("not a regular file"));
  EXPECT_THAT(rejection_of("/dev/zero"), HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo((directory_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(rejection_of(directory_ / "pipe"), HasSubstr("not a regular file")) << "and does not wait";
}

struct Lie {
  const char* description;
  std::string header;
  std::size_t data_bytes;
  const char* message;
};

// The header of one tensor of two floats; callers replace one of its fields.
std::string tensor_with(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"t":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}
std::string shaped(const std::string& shape) {
  return tensor_with(R"("F32")", shape, "[0,8]");
}
std::string placed(const std::string& offsets) {
  return tensor_with(R"("F32")", "[2]", offsets);
}
std::string metadata_of(const std::string& json) {
  return R"({"__metadata__":)" + json + "}";
}
// Tensors of bytes, each with its own pair of offsets.
std::string row(const std::vector<std::pair<int, int>>& places) {
  std::string text;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto [begin, end] = places[i];
    text += (i == 0 ? "{" : ",") + std::string("\"t") + std::to_string(i) + R"(":{"dtype":"U8","shape":[)" +
            std::to_string(end - begin) + R"(],"data_offsets":[)" + std::to_string(begin) + "," +
            std::to_string(end) + "]}";
  }
  return text + "}";
}
std::string repeated(const std::string& text, std::size_t count) {
  std::string result;
  for (std::size_t i = 0; i < count; ++i) {
    result += text;
  }
  return result;
}

std::vector<Lie> lies() {
  const std::string field = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  const std::string tensor = R"("t":{)" + field + "}";
  const char* const not_json = "the header is not JSON";
  return {
      {"no header", "", 0, "begins with '{'"},
      {"space before", " {}", 0, "begins with '{'"},
      {"a list", "[]", 0, "begins with '{'"},
      {"not closed", "{", 0, not_json},
      {"text behind", "{}x", 0, not_json},
      {"a second object", "{}{}", 0, not_json},
      {"a zero behind, where the parser would stop", std::string("{}\0x", 4), 0, not_json},
      {"a zero in front of what would be wrong", std::string("{\0}", 3), 0, not_json},
      {"a comma too many", "{" + tensor + ",}", 8, not_json},
      {"a comment", "{/**/}", 0, not_json},
      {"not UTF-8", "{\"\xff\":0}", 0, not_json},
      {"half of a surrogate pair", R"({"\ud800":0})", 0, not_json},
      {"a tensor twice", "{" + tensor + "," + tensor + "}", 8, "twice"},
      {"a tensor twice, once escaped", "{" + tensor + R"(,"\u0074":{)" + field + "}}", 8, "twice"},
      {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", 0, "twice"},
      {"a key of the metadata twice", metadata_of(R"({"k":"v","k":"v"})"), 0, "twice"},
      {"a field twice", R"({"t":{)" + field + R"(,"dtype":"F32"}})", 8, "dtype is there twice"},
      {"a field that nobody knows", R"({"t":{)" + field + R"(,"strides":[1]}})", 8, "strides"},
      {"no dtype", R"({"t":{"shape":[2],"data_offsets":[0,8]}})", 8, "lacks dtype"},
      {"no shape", R"({"t":{"dtype":"F32","data_offsets":[0,8]}})", 8, "lacks shape"},
      {"no offsets", R"({"t":{"dtype":"F32","shape":[2]}})", 8, "lacks data_offsets"},
      {"nothing at all", R"({"t":{}})", 0, "lacks dtype"},
      {"a number for a tensor", R"({"t":1})", 0, "expected an object, found 1"},
      {"null for a tensor", R"({"t":null})", 0, "expected an object, found null"},
      {"a list for a tensor", R"({"t":[]})", 0, "expected an object, found a list"},
      {"a text for metadata", metadata_of(R"("x")"), 0, "expected an object"},
      {"a number in the metadata", metadata_of(R"({"k":1})"), 0, "metadata, key \"k\": expected a text"},
      {"an object in the metadata", metadata_of(R"({"k":{}})"), 0, "expected a text"},
      {"a dtype of another version", tensor_with(R"("F8_E4M3")", "[4]", "[0,4]"), 4,
       "F32, F16, BF16, I32, U8), found \"F8_E4M3\""},
      {"a dtype in small letters", tensor_with(R"("f32")", "[2]", "[0,8]"), 8, "found \"f32\""},
      {"a number for a dtype", tensor_with("32", "[2]", "[0,8]"), 8, "name of a data type, found 32"},
      {"a number for a shape", shaped("2"), 8, "list of dimensions, found 2"},
      {"a negative dimension", shaped("[-2]"), 8, "whole number from 0 on, found -2"},
      {"two negative dimensions", shaped("[-1,-2]"), 8, "found -1"},
      {"a fraction for a dimension", shaped("[2.0]"), 8, "found \"2.0\""},
      {"an exponent", shaped("[2e0]"), 8, "found \"2e0\""},
      {"a text for a dimension", shaped(R"(["2"])"), 8, "found \"2\""},
      {"true for a dimension", shaped("[true,2]"), 8, "found true"},
      {"a list for a dimension", shaped("[[2]]"), 8, "found a list"},
      {"a dimension of 64 bits", shaped("[9223372036854775808]"), 8, "63 bits"},
      {"a dimension of 65 bits", shaped("[18446744073709551616]"), 8, "whole number"},
      {"a product that is 8 modulo 2^64", shaped("[4611686018427387905,4]"), 8, "overflows"},
      {"bytes that are 8 modulo 2^64", shaped("[4611686018427387906]"), 8, "overflows"},
      {"an overflow before a zero", shaped("[4611686018427387905,4,0]"), 8, "overflows"},
      {"too many dimensions", shaped("[" + repeated("1,", 64) + "2]"), 8, "at most 64 dimensions"},
      {"a shape that is too large", shaped("[3]"), 8, "expected 12 bytes for the shape 3 and F32"},
      {"a shape that is too small", shaped("[1]"), 8, "expected 4 bytes for the shape 1 and F32"},
      {"a scalar of two", shaped("[]"), 8, "expected 4 bytes for the shape of a scalar"},
      {"no elements but data", shaped("[0]"), 8, "expected 0 bytes"},
      {"no offsets in the list", placed("[]"), 8, "expected 2 data_offsets, found 0"},
      {"one offset", placed("[8]"), 8, "expected 2 data_offsets, found 1"},
      {"three offsets", placed("[0,8,8]"), 8, "expected 2 data_offsets, found more"},
      {"a number for the offsets", placed("8"), 8, "list of 2 offsets"},
      {"negative offsets", placed("[-8,0]"), 8, "whole number"},
      {"offsets in reverse", placed("[8,0]"), 8, "before they begin"},
      {"offsets that wrap", placed("[18446744073709551612,4]"), 8, "before they begin"},
      {"offsets far away", placed("[18446744073709551607,18446744073709551615]"), 8, "a hole"},
      {"data past the end of the file", placed("[0,8]"), 7, "end at 7 with the file"},
      {"no data in the file", placed("[0,8]"), 0, "end at 0 with the file"},
      {"data that nobody owns", placed("[0,8]"), 9, "found 1 more"},
      {"data without tensors", "{}", 1, "expected 0 bytes of data, found 1 more"},
      {"a hole at the beginning", row({{1, 3}}), 3, "at 0, where the tensor before it ends, found them at 1"},
      {"a hole in the middle", row({{0, 2}, {3, 4}}), 4, "\"t1\": expected its data at 2"},
      {"a hole before a tensor without data", row({{0, 2}, {3, 3}}), 3, "a hole"},
      {"an overlap", row({{0, 2}, {1, 4}}), 4, "an overlap"},
      {"the same data twice", row({{0, 2}, {0, 2}}), 2, "an overlap"},
      {"one inside another", row({{0, 4}, {1, 2}}), 4, "an overlap"},
      {"nothing, inside another", row({{0, 4}, {2, 2}}), 4, "an overlap"},
      {"deep lists", R"({"t":)" + repeated("[", 1'000'000), 0, "found a list"},
      {"deep lists as a shape", R"({"t":{"shape":)" + repeated("[", 1'000'000), 0, "found a list"},
      {"deep objects", repeated(R"({"t":)", 1'000'000), 0, "found the key"},
      {"deep metadata", repeated(R"({"__metadata__":)", 1'000'000), 0, "found an object"},
  };
}

TEST_F(SafetensorsTest, NoLieIsBelieved) {
  for (const Lie& lie : lies()) {
    SCOPED_TRACE(lie.description);
    write("file", raw_file(lie.header, lie.data_bytes));
    EXPECT_THAT(rejection_of(directory_ / "file"), HasSubstr(lie.message));
  }
}

TEST_F(SafetensorsTest, MessagesStayShortAndPrintable) {
  write("file", raw_file("{\"\xc3\xbc\\u0000\\n" + std::string(1'000'000, 'x') + "\":1}", 0));
  const std::string message = rejection_of(directory_ / "file");
  EXPECT_LT(message.size(), directory_.string().size() + 250);
  EXPECT_TRUE(std::ranges::all_of(message, [](char c) { return c >= ' ' && c <= '~'; })) << message;
}

TEST_F(SafetensorsTest, TheLengthOfTheHeaderIsNotBelieved) {
  const fs::path path = directory_ / "file";
  for (const std::uint64_t length : {std::uint64_t{3}, std::uint64_t{100'000'000}, std::uint64_t{100'000'001},
                                     std::uint64_t{1} << 63, ~std::uint64_t{0} - 7, ~std::uint64_t{0}}) {
    std::string text = raw_file("{}", 0);
    std::memcpy(text.data(), &length, sizeof(length));
    write("file", text);
    EXPECT_THAT(rejection_of(path), AllOf(HasSubstr("at most 2 bytes"), HasSubstr(std::to_string(length))));
  }
  // The file is as large as claimed, but the disk contains only its beginning.
  std::string text = raw_file("{}", 0);
  const std::uint64_t length = kLargestSafetensorsHeader + 1;
  std::memcpy(text.data(), &length, sizeof(length));
  write("file", text);
  fs::resize_file(path, std::uintmax_t{1} << 30);
  EXPECT_THAT(rejection_of(path), HasSubstr("at most 100000000 bytes, found the length 100000001"));
}

// --- damage ------------------------------------------------------------------------------------------------

// Opening the file must either throw a DataError, or find tensors that can be read and divide the data
// between them.
void expect_sound_or_rejected(const fs::path& path, std::uint64_t& accepted) {
  try {
    const SafetensorsFile file(path);
    std::uint64_t bytes = 0;
    for (const SafetensorsTensor& tensor : file.tensors()) {
      bytes += read_tensor(file, tensor).size();
    }
    EXPECT_LE(bytes, fs::file_size(path));
    ++accepted;
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr(path.string()));
  }
}

TEST_F(SafetensorsTest, NoBeginningOfAFileIsAccepted) {
  const fs::path path = directory_ / "file";
  write_file(path, kTensors, kMetadata);
  for (std::uint64_t size = fs::file_size(path); size-- > 0;) {
    fs::resize_file(path, size);
    SCOPED_TRACE(size);
    rejection_of(path);
  }
}

TEST_F(SafetensorsTest, SurvivesEveryByteOfTheHeaderChangedToEveryOther) {
  const fs::path path = directory_ / "file";
  write_file(path, {{.name = "a", .dims = {2, 1}}, {.name = "b", .data_type = DataType::kU8, .dims = {3}}},
             {{"k", "v"}});
  std::string text = read("file");
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, text.data(), sizeof(header_bytes));
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto put = [&](std::size_t position, char byte) {
    file.seekp(static_cast<std::streamoff>(position));
    file.put(byte).flush();
    ASSERT_TRUE(file.good());
  };
  std::uint64_t accepted = 0;
  for (std::size_t position = 0; position < sizeof(header_bytes) + header_bytes; ++position) {
    for (int change = 1; change < 256; ++change) {
      put(position, static_cast<char>(text[position] ^ change));
      expect_sound_or_rejected(path, accepted);
      if (HasFailure()) {
        FAIL() << "byte " << position << " changed by " << change;
      }
    }
    put(position, text[position]);
  }
  EXPECT_GT(accepted, 0U) << "names and texts may have any contents";
}

// Damage that stays close to JSON gets further into the reader than single changed bytes: pieces of headers
// and extreme numbers, inserted, doubled or dropped.
std::string damaged(std::string header, SplitMix64& random) {
  static const std::array<std::string, 16> kPieces{
      "0",        "1",   "8",
      "12",       "-1",  "18446744073709551615",
      "[",        "]",   "{",
      "}",        ",",   "\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},",
      "\"",       "[0]", "\"U8\"",
      "\"shape\""};
  const std::uint64_t changes = 1 + random.below(3);
  for (std::uint64_t change = 0; change < changes; ++change) {
    const std::size_t begin = random.below(header.size());
    const std::size_t size = std::min<std::size_t>(random.below(12), header.size() - begin);
    switch (random.below(3)) {
      case 0:
        header.replace(begin, size, kPieces[random.below(kPieces.size())]);
        break;
      case 1:
        header.insert(random.below(header.size()), header.substr(begin, size));
        break;
      default:
        header.erase(begin, std::min<std::size_t>(size, header.size() - 1));
        break;
    }
  }
  return header;
}

TEST_F(SafetensorsTest, SurvivesDamageAtRandom) {
  const fs::path path = directory_ / "file";
  const std::string header =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"U8","shape":[4],"data_offsets":[8,12]}})";
  std::uint64_t accepted = 0;
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    SplitMix64 random(seed);
    write("file", raw_file(damaged(header, random), 12));
    expect_sound_or_rejected(path, accepted);
    if (HasFailure()) {
      FAIL() << "seed " << seed;
    }
  }
  EXPECT_GT(accepted, 0U);
}

// --- the public implementation -----------------------------------------------------------------------------

// Returns the standard output; the test fails unless the command succeeds.
std::string output_of(const std::string& command) {
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  std::string output;
  std::array<char, 4096> buffer{};
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    output.append(buffer.data(), count);
  }
  EXPECT_EQ(::pclose(pipe), 0) << command;
  return output;
}

std::string json(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true);
}

// The expected output of safetensors_check.py.
std::string description(std::vector<SafetensorsTensor> tensors, const SafetensorsMetadata& metadata,
                        const std::function<Bytes(const SafetensorsTensor&)>& data) {
  std::ostringstream out;
  for (const auto& [key, value] : metadata) {
    out << "metadata " << json(key) << ' ' << json(value) << '\n';
  }
  std::ranges::sort(tensors, {}, &SafetensorsTensor::name);
  for (const SafetensorsTensor& tensor : tensors) {
    constexpr std::array<const char*, 4> kTypes{"float32", "int32", "uint8", "float16"};  // NumPy has no bf16
    Sha256 hash;
    hash.update(data(tensor));
    out << "tensor " << json(tensor.name) << ' ' << kTypes.at(static_cast<std::size_t>(tensor.data_type))
        << ' ' << nlohmann::json(tensor.dims).dump() << ' ' << hash.hex_digest() << '\n';
  }
  return out.str();
}

// An interpreter alone is not enough: it may lack the packages.
bool python_has_safetensors() {
  return output_of("'" VDNN_TEST_PYTHON "' -c 'import safetensors, numpy' 2>/dev/null; echo $?") == "0\n";
}

TEST_F(SafetensorsTest, PythonReadsWhatWasWrittenAndItsCopyIsRead) {
  if (!python_has_safetensors()) {
    GTEST_SKIP() << VDNN_TEST_PYTHON " has no safetensors and NumPy: scripts/setup --dev installs them";
  }
  const fs::path path = directory_ / "file";
  const fs::path copy_path = directory_ / "copy";
  write_file(path, kTensors, kMetadata);
  const SafetensorsFile file(path);
  const std::string expected = description(
      kTensors, kMetadata, [&](const SafetensorsTensor& tensor) { return read_tensor(file, tensor); });
  EXPECT_EQ(output_of("'" VDNN_TEST_PYTHON "' '" VDNN_SAFETENSORS_CHECK "' '" + path.string() + "' '" +
                      copy_path.string() + "'"),
            expected);
  const SafetensorsFile copy(copy_path);
  EXPECT_EQ(description(copy.tensors(), copy.metadata(),
                        [&](const SafetensorsTensor& tensor) { return read_tensor(copy, tensor); }),
            expected);
}

TEST_F(SafetensorsTest, ThePythonScriptSaysWhatItCannotRead) {
  if (!python_has_safetensors()) {
    GTEST_SKIP() << VDNN_TEST_PYTHON " has no safetensors and NumPy: scripts/setup --dev installs them";
  }
  write("file", raw_file("{}", 1));
  const std::string command = "'" VDNN_TEST_PYTHON "' '" VDNN_SAFETENSORS_CHECK "' '" +
                              (directory_ / "file").string() + "' 2>&1; echo $?";
  EXPECT_THAT(output_of(command),
              AllOf(HasSubstr((directory_ / "file").string()), ::testing::EndsWith("\n1\n")));
}

}  // namespace
}  // namespace vdnn
