#pragma once
// A directory named after its test and removed with it. Each process that runs the test has its own.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace vdnn::testing {

class TemporaryDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string("vdnn_") + test->test_suite_name() + "_" + test->name() + "_XXXXXX";
    // Names of parametrised tests have slashes, which would leave parent directories behind.
    std::ranges::replace(name, '/', '_');
    std::string path = std::filesystem::path(::testing::TempDir()) / name;
    ASSERT_NE(::mkdtemp(path.data()), nullptr) << path;
    directory_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream file(directory_ / name, std::ios::binary);
    file << text;
    ASSERT_TRUE(file.good());
  }
  std::string read(const std::string& name) const {
    std::ifstream file(directory_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  bool empty() const { return std::filesystem::is_empty(directory_); }

  std::filesystem::path directory_;
};

}  // namespace vdnn::testing
