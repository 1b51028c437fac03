#pragma once
// A directory for one test, named after it, gone with it.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace vdnn::testing {

class TemporaryDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    directory_ = std::filesystem::path(::testing::TempDir()) /
                 (std::string("vdnn_") + test->test_suite_name() + "_" + test->name());
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
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
