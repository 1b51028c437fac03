#pragma once
// Sums for each channel of feature maps, channels last, and loops that know the channel of each element.
//
// A sample is cut into blocks that do not depend on the number of threads. Each block is summed separately,
// into a row of lanes. The number of lanes is a multiple of the channels, so that each lane belongs to one
// channel, and the loop over lanes is a vector loop for any number of channels. The blocks' sums are then
// added in order. So results do not depend on the number of threads. Sums are in double, where products of
// two floats are exact, so that the mean square minus the squared mean is an accurate variance.

#include <algorithm>
#include <cstdint>

#include "src/ops/cpu/loops.h"
#include "vdnn/size.h"
#include "vdnn/tensor.h"

namespace vdnn::cpu {

// How samples are cut into blocks. If `one_sample`, the whole batch counts as one sample.
struct ChannelGeometry {
  std::uint64_t samples = 0;
  std::uint64_t channels = 0;
  std::uint64_t elements = 0;  // per sample
  std::uint64_t lanes = 0;
  std::uint64_t block = 0;   // elements of a block: whole rows of lanes
  std::uint64_t blocks = 0;  // per sample

  explicit ChannelGeometry(const TensorType& type, bool one_sample = false)
      : samples(one_sample ? 1 : static_cast<std::uint64_t>(type.dims[0])),
        channels(static_cast<std::uint64_t>(type.dims[1])),
        elements(type.elements() / samples) {
    constexpr std::uint64_t kLeastLanes = 16;
    constexpr std::uint64_t kBlock = 32768;
    lanes = round_up(kLeastLanes, channels);
    block = lanes > kBlock ? lanes : kBlock / lanes * lanes;
    blocks = (elements + block - 1) / block;
  }
};

// The workspace: two sums for each lane of each block, then coefficients of the lanes of each sample.
class ChannelWorkspace {
 public:
  static constexpr std::uint64_t kCoefficients = 4;

  static std::uint64_t bytes(const ChannelGeometry& geometry) {
    const std::uint64_t sums = checked_multiply(2 * sizeof(double), geometry.blocks);
    const std::uint64_t lane = checked_add(sums, kCoefficients * sizeof(float));
    return checked_multiply(checked_multiply(lane, geometry.lanes), geometry.samples);
  }

  ChannelWorkspace(const ChannelGeometry& geometry, const AddressRange& range)
      : geometry_(geometry),
        sums_(pointer_to<double>(range.begin)),
        coefficients_(pointer_to<float>(range.begin + 2 * sizeof(double) * geometry.samples *
                                                          geometry.blocks * geometry.lanes)) {}

  // The sums of a block. After add_up(), block 0 contains the sums of each channel of the sample.
  double* sums(std::uint64_t sample, std::uint64_t block, std::uint64_t which) const {
    return sums_ + ((sample * geometry_.blocks + block) * 2 + which) * geometry_.lanes;
  }
  float* coefficients(std::uint64_t sample, std::uint64_t which) const {
    return coefficients_ + (sample * kCoefficients + which) * geometry_.lanes;
  }
  // Sets the coefficient of all lanes of a channel.
  void set_coefficient(std::uint64_t sample, std::uint64_t which, std::uint64_t channel, double value) const {
    float* const lanes = coefficients(sample, which);
    for (std::uint64_t lane = channel; lane < geometry_.lanes; lane += geometry_.channels) {
      lanes[lane] = static_cast<float>(value);
    }
  }

 private:
  const ChannelGeometry& geometry_;
  double* sums_;
  float* coefficients_;
};

// Calls work(sample, block, first element, elements) for all blocks.
template <class Work>
void for_each_block(const ChannelGeometry& geometry, int threads, const Work& work) {
  const auto work_on = [&](std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t i = begin; i < end; ++i) {
      const std::uint64_t sample = i / geometry.blocks;
      const std::uint64_t offset = i % geometry.blocks * geometry.block;
      work(sample, i % geometry.blocks, sample * geometry.elements + offset,
           std::min(geometry.block, geometry.elements - offset));
    }
  };
  for_each_range(geometry.samples * geometry.blocks, threads, work_on,
                 std::min(geometry.block, geometry.elements));
}

// Calls work(first element, lanes) for each row of lanes in a block.
template <class Work>
void for_each_row(const ChannelGeometry& geometry, std::uint64_t first, std::uint64_t count,
                  const Work& work) {
  std::uint64_t row = 0;
  for (; row + geometry.lanes <= count; row += geometry.lanes) {
    work(first + row, geometry.lanes);
  }
  if (row < count) {
    work(first + row, count - row);
  }
}

// Sums of `a` and of the products `a * b` for each channel of each sample. Both are indexed by element.
template <class A, class B>
void add_up(const ChannelGeometry& geometry, int threads, const A& a, const B& b,
            const ChannelWorkspace& workspace) {
  for_each_block(geometry, threads,
                 [&](std::uint64_t sample, std::uint64_t block, std::uint64_t first, std::uint64_t count) {
                   double* const sums = workspace.sums(sample, block, 0);
                   double* const products = workspace.sums(sample, block, 1);
                   std::fill_n(sums, 2 * geometry.lanes, 0.0);
                   for_each_row(geometry, first, count, [=](std::uint64_t row, std::uint64_t lanes) {
#pragma omp simd
                     for (std::uint64_t lane = 0; lane < lanes; ++lane) {
                       const auto left = static_cast<double>(a[row + lane]);
                       sums[lane] += left;
                       products[lane] += left * static_cast<double>(b[row + lane]);
                     }
                   });
                 });
  for (std::uint64_t sample = 0; sample < geometry.samples; ++sample) {
    double* const folded = workspace.sums(sample, 0, 0);
    for (std::uint64_t i = 2 * geometry.lanes; i < 2 * geometry.lanes * geometry.blocks; ++i) {
      folded[i % (2 * geometry.lanes)] += folded[i];
    }
    for (const std::uint64_t which : {0U, 1U}) {
      double* const sums = workspace.sums(sample, 0, which);
      for (std::uint64_t lane = geometry.channels; lane < geometry.lanes; ++lane) {
        sums[lane % geometry.channels] += sums[lane];
      }
    }
  }
}

}  // namespace vdnn::cpu
