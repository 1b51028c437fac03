#pragma once
// Samples as values, and files as bytes, for tests of data sets.

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "vdnn/dataset.h"
#include "vdnn/sha256.h"

namespace vdnn::testing {

using Bytes = std::vector<std::uint8_t>;

inline void write_file(const std::filesystem::path& path, const Bytes& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(file.good()) << path;
}

inline Bytes read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline Bytes prefix(const Bytes& bytes, std::size_t size) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)};
}

struct Sample {
  std::vector<float> image;
  std::vector<std::int32_t> targets;
  friend bool operator==(const Sample&, const Sample&) = default;
};

inline Sample read_sample(const Dataset& data, std::uint64_t index, std::uint64_t epoch = 0) {
  Sample sample{.image = std::vector<float>(element_count(data.sample_dims())),
                .targets = std::vector<std::int32_t>(element_count(data.target_dims()))};
  data.read({.index = index, .epoch = epoch}, sample.image, sample.targets);
  return sample;
}

inline std::vector<Sample> read_all(const Dataset& data) {
  std::vector<Sample> samples;
  for (std::uint64_t i = 0; i < data.size(); ++i) {
    samples.push_back(read_sample(data, i));
  }
  return samples;
}

// A data set of the first samples of another data set, so that epochs are short.
class FirstSamples : public Dataset {
 public:
  FirstSamples(std::unique_ptr<Dataset> data, std::uint64_t size) : data_(std::move(data)), size_(size) {}
  std::uint64_t size() const override { return size_; }
  const Dims& sample_dims() const override { return data_->sample_dims(); }
  const Dims& target_dims() const override { return data_->target_dims(); }
  std::int64_t classes() const override { return data_->classes(); }
  void read(const SampleKey& key, std::span<float> image, std::span<std::int32_t> targets) const override {
    data_->read(key, image, targets);
  }

 private:
  std::unique_ptr<Dataset> data_;
  std::uint64_t size_;
};

// Hashes images and targets of the first `count` samples, as bytes.
inline std::string sha256_of_samples(const Dataset& data, std::uint64_t count) {
  Sha256 digest;
  for (std::uint64_t i = 0; i < count; ++i) {
    const Sample sample = read_sample(data, i);
    digest.update(std::as_bytes(std::span(sample.image)));
    digest.update(std::as_bytes(std::span(sample.targets)));
  }
  return digest.hex_digest();
}

// Returns the text of the `Expected` error that `act` throws.
template <typename Expected, typename Act>
std::string problem(Act&& act) {
  try {
    act();
  } catch (const Expected& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace vdnn::testing
