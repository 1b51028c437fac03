#include "src/report/json_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tests/temporary_directory.h"
#include "vdnn/error.h"

namespace vdnn::json_lines_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

class JsonLinesTest : public testing::TemporaryDirectory {};

TEST_F(JsonLinesTest, WritesOneObjectALineSchemaFirst) {
  JsonLines lines(directory_ / "out.json");
  lines.write({{"type", "step"}, {"loss", 0.5}});
  // A concurrent reader sees the line at once.
  EXPECT_EQ(read("out.json"), "{\"schema\":1,\"type\":\"step\",\"loss\":0.5}\n");
  lines.write({{"type", "summary"}, {"device", "a\n\"b\""}, {"bytes", std::uint64_t{1} << 63}});
  EXPECT_EQ(
      read("out.json"),
      "{\"schema\":1,\"type\":\"step\",\"loss\":0.5}\n"
      "{\"schema\":1,\"type\":\"summary\",\"device\":\"a\\n\\\"b\\\"\",\"bytes\":9223372036854775808}\n");
}

TEST_F(JsonLinesTest, ReplacesWhatWasThere) {
  write("out.json", "an older run\n");
  JsonLines lines(directory_ / "out.json");
  lines.write(Json::object());
  EXPECT_EQ(read("out.json"), "{\"schema\":1}\n");
}

TEST_F(JsonLinesTest, ALossThatIsNotANumberIsNull) {
  JsonLines lines(directory_ / "out.json");
  lines.write({{"loss", std::nan("")}});
  EXPECT_EQ(read("out.json"), "{\"schema\":1,\"loss\":null}\n");
}

TEST_F(JsonLinesTest, RefusesAPathThatCannotBeWritten) {
  fs::create_directory(directory_ / "taken");
  EXPECT_THROW(JsonLines(directory_ / "taken"), InvalidArgument);
  EXPECT_THROW(JsonLines(directory_ / "absent" / "out.json"), InvalidArgument);
}

TEST_F(JsonLinesTest, RefusesWhatIsNotAnObject) {
  JsonLines lines(directory_ / "out.json");
  EXPECT_THROW(lines.write(Json::array()), InvalidArgument);
  EXPECT_EQ(read("out.json"), "");
}

TEST_F(JsonLinesTest, ReportsADiskThatIsFull) {
  if (!fs::exists("/dev/full")) {
    GTEST_SKIP() << "there is no /dev/full here";
  }
  JsonLines lines("/dev/full");
  try {
    lines.write(Json::object());
    FAIL() << "no exception was thrown";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'/dev/full'"));
  }
}

// Opening /dev/stdout by name truncates the file behind standard output. Regression: `vdnn ... >> log` lost
// the log.
TEST_F(JsonLinesTest, StandardOutputIsWrittenThroughNotOpened) {
  ::testing::internal::CaptureStdout();
  std::cout << "before\n" << std::flush;
  {
    JsonLines lines("/dev/stdout");
    lines.write({{"type", "summary"}});
  }
  std::cout << "after\n" << std::flush;
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "before\n{\"schema\":1,\"type\":\"summary\"}\nafter\n");
}

}  // namespace
}  // namespace vdnn::json_lines_test
