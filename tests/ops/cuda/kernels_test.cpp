// What all kernels are put together from, around the sizes at which they change their shape. Layers on these
// kernels are held to their references by ops_test.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "src/ops/cuda/bias.h"
#include "src/ops/cuda/kernels/divisor.h"
#include "src/ops/cuda/sums.h"
#include "tests/fakes/emulated_kernels.h"
#include "tests/ops/guarded_buffer.h"
#include "tests/ops/layer_cases.h"
#include "vdnn/error.h"

namespace vdnn::testing {
namespace {

using cuda::Divisor;
using cuda::Launcher;

constexpr std::array kOrders{ThreadOrder::kForward, ThreadOrder::kReversed, ThreadOrder::kRandom};

TEST(Divisor, DividesAsTheProcessorDoes) {
  std::mt19937_64 engine(700);
  std::vector<std::uint64_t> numbers{1, 2, 3, 5, 7, 10, 641, 1000, 0xffff'ffff, 0x1'0000'0000, 0x1'0000'0001};
  for (int bits = 2; bits < 63; ++bits) {
    const std::uint64_t power = std::uint64_t{1} << bits;
    numbers.insert(numbers.end(), {power - 1, power, power + 1, engine() >> (64 - bits) | 1});
  }
  numbers.push_back(0x7fff'ffff'ffff'ffff);
  for (const std::uint64_t by : numbers) {
    const Divisor divisor(by);
    for (const std::uint64_t near : numbers) {
      const std::uint64_t multiple = near / by * by;
      for (const std::uint64_t dividend : {near, near - 1, multiple, multiple - (multiple > 0 ? 1 : 0)}) {
        ASSERT_EQ(divisor.quotient(dividend), dividend / by) << dividend << " / " << by;
        ASSERT_EQ(divisor.remainder(dividend), dividend % by) << dividend << " % " << by;
      }
    }
  }
}

// A kernel's memory, with guards around it.
class Arrays {
 public:
  float* add(const std::vector<float>& values) {
    buffers_.push_back(std::make_unique<GuardedBuffer>(values.size() * sizeof(float)));
    std::ranges::copy(values, buffers_.back()->as<float>().begin());
    return buffers_.back()->as<float>().data();
  }
  AddressRange workspace(std::uint64_t bytes) {
    buffers_.push_back(std::make_unique<GuardedBuffer>(bytes));
    return buffers_.back()->range();
  }
  ~Arrays() {
    for (const auto& each : buffers_) {
      EXPECT_TRUE(each->slack_is_intact()) << "wrote beside an array";
    }
  }

 private:
  std::vector<std::unique_ptr<GuardedBuffer>> buffers_;
};

std::vector<float> random_values(std::uint64_t count, std::uint32_t seed) {
  const reference::Array array = random_array({static_cast<std::int64_t>(count)}, seed);
  return {array.data.begin(), array.data.end()};
}

// Sums of squared differences of rows are in one piece and in several; of whole numbers they are exact.
double sum_of_squares(ThreadOrder order, const std::vector<float>& values) {
  const auto table = make_emulated_kernels(order);
  const Launcher launcher(*table, nullptr);
  Arrays arrays;
  cuda::Workspace workspace(
      arrays.workspace(cuda::workspace_bytes<cuda::RowSumsLayout<1>>(std::uint64_t{1}, values.size())).begin);
  const cuda::RowSumsLayout<1> sums(workspace, 1, values.size());
  const float* const x = arrays.add(values);
  const float* const zero = arrays.add(std::vector<float>(values.size()));
  launch_row_sums(launcher, cuda::SquaredDifference{.x = x, .t = zero}, sums);
  return sums.sums->value[0];
}

TEST(RowSums, AddsEveryTermOnce) {
  for (const std::uint64_t length : {1, 2, 255, 256, 257, 8191, 8192, 8193, 20'000, 5 * 8192}) {
    for (const ThreadOrder order : kOrders) {
      SCOPED_TRACE(length);
      EXPECT_EQ(sum_of_squares(order, std::vector<float>(length, 3)), 9 * static_cast<double>(length));
    }
  }
}

TEST(RowSums, OrderOfThreadsDoesNotChangeABit) {
  for (const std::uint64_t length : {3, 300, 20'000}) {
    const std::vector<float> values = random_values(length, 701);
    const double want = sum_of_squares(ThreadOrder::kForward, values);
    EXPECT_EQ(sum_of_squares(ThreadOrder::kReversed, values), want);
    EXPECT_EQ(sum_of_squares(ThreadOrder::kRandom, values), want);
  }
}

// Fewer channels than threads, as many, more; one place, and enough for several pieces.
const std::vector<Dims>& map_shapes() {
  static const std::vector<Dims> kShapes{{1, 1},      {3, 1, 700},    {2, 3, 5, 7}, {2, 3, 71, 93},
                                         {1, 255, 3}, {2, 256, 5},    {3, 257, 65}, {1, 700, 3},
                                         {70, 520},   {2, 128, 9, 61}};
  return kShapes;
}

TEST(Bias, GradientIsTheSumOverPlacesAndSamples) {
  for (const Dims& shape : map_shapes()) {
    const TensorType type{.dims = shape};
    const auto channels = static_cast<std::size_t>(shape[1]);
    const std::vector<float> dy = random_values(type.elements(), 702);
    std::vector<double> want(channels);
    for (std::size_t i = 0; i < dy.size(); ++i) {
      want[i % channels] += static_cast<double>(dy[i]);
    }
    for (const ThreadOrder order : kOrders) {
      SCOPED_TRACE(to_string(shape));
      const auto table = make_emulated_kernels(order);
      Arrays arrays;
      float* const gradient = arrays.add(std::vector<float>(channels, NAN));
      launch_bias_gradient(Launcher(*table, nullptr), type, arrays.add(dy), gradient,
                           arrays.workspace(cuda::bias_gradient_bytes(type)));
      for (std::size_t c = 0; c < channels; ++c) {
        // Terms are multiples of 2^-23 less than 1: their sums are exact.
        ASSERT_EQ(gradient[c], static_cast<float>(want[c])) << "channel " << c;
      }
    }
  }
}

TEST(Bias, IsAddedToEachChannelInPlaceToo) {
  for (const Dims& shape : map_shapes()) {
    SCOPED_TRACE(to_string(shape));
    const TensorType type{.dims = shape};
    const std::vector<float> x = random_values(type.elements(), 703);
    const std::vector<float> bias = random_values(static_cast<std::uint64_t>(shape[1]), 704);
    const auto table = make_emulated_kernels(ThreadOrder::kRandom);
    Arrays arrays;
    float* const apart = arrays.add(std::vector<float>(x.size(), NAN));
    float* const in_place = arrays.add(x);
    const float* const added = arrays.add(bias);
    launch_bias(Launcher(*table, nullptr), type, arrays.add(x), added, apart);
    launch_bias(Launcher(*table, nullptr), type, in_place, added, in_place);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(apart[i], x[i] + bias[i % bias.size()]) << i;
      ASSERT_EQ(in_place[i], apart[i]) << i;
    }
  }
}

// Two elements of more than 2^31 elements and 2^32 blocks: what no test can run.
TEST(Kernels, GridsAreCountedIn64Bits) {
  constexpr std::uint64_t kMany = std::uint64_t{1} << 46;
  EXPECT_EQ(cuda::blocks_of(cuda::ReluForward{.elements = kMany}), 8192U);
  Divisor channels(3);
  EXPECT_EQ(channels.quotient(3 * kMany + 2), kMany);
  cuda::Workspace workspace;
  const cuda::RowSumsLayout<1> sums(workspace, 5, kMany);
  EXPECT_EQ(sums.pieces, kMany / 8192);
  EXPECT_EQ(workspace.bytes(), 256 + 5 * kMany / 8192 * 8);
}

TEST(Kernels, NoneIsLaunchedOverNothing) {
  const auto table = make_emulated_kernels(ThreadOrder::kForward);
  EXPECT_THROW(table->launch(cuda::ReluForward{}, nullptr), InvalidArgument);
}

}  // namespace
}  // namespace vdnn::testing
