// The building blocks of all kernels, at sizes around the limits where a launch changes its grid. ops_test
// compares the layers that use these kernels with their references.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/ops/cuda/bias.h"
#include "src/ops/cuda/copies.h"
#include "src/ops/cuda/kernels/divisor.h"
#include "src/ops/cuda/sums.h"
#include "src/ops/formats.h"
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
  template <class T>
  T* add(const std::vector<T>& values) {
    buffers_.push_back(std::make_unique<GuardedBuffer>(values.size() * sizeof(T)));
    std::ranges::copy(values, buffers_.back()->as<T>().begin());
    return buffers_.back()->as<T>().data();
  }
  AddressRange workspace(std::uint64_t bytes) {
    buffers_.push_back(std::make_unique<GuardedBuffer>(bytes));
    return buffers_.back()->range();
  }
  ~Arrays() {
    for (const auto& each : buffers_) {
      EXPECT_TRUE(each->slack_is_intact()) << "the kernel wrote beside an array";
    }
  }

 private:
  std::vector<std::unique_ptr<GuardedBuffer>> buffers_;
};

std::vector<float> random_values(std::uint64_t count, std::uint32_t seed) {
  const reference::Array array = random_array({static_cast<std::int64_t>(count)}, seed);
  return {array.data.begin(), array.data.end()};
}

constexpr std::array kTypes{DataType::kF32, DataType::kF16, DataType::kBf16};

template <class Format>
std::vector<cuda::Stored<Format>> narrowed(const std::vector<float>& values) {
  std::vector<cuda::Stored<Format>> bits(values.size());
  std::ranges::transform(values, bits.begin(), Format::narrow);
  return bits;
}

// Counts around one pack, one block, and all blocks that the emulation runs at once.
constexpr std::array<std::uint64_t, 13> kCounts{1, 3, 4, 7, 8, 9, 15, 16, 17, 2047, 2048, 2057, 20'001};

template <class Format>
void expect_sums(std::uint64_t count, ThreadOrder order) {
  const auto a = narrowed<Format>(random_values(count, 705));
  const auto b = narrowed<Format>(random_values(count, 706));
  Arrays arrays;
  auto* const apart = arrays.add(std::vector<cuda::Stored<Format>>(count));
  auto* const in_place = arrays.add(a);
  const auto table = make_emulated_kernels(order);
  const auto* const right = arrays.add(b);
  table->launch(cuda::Addition<Format>{.a = arrays.add(a), .b = right, .sum = apart, .elements = count},
                nullptr);
  table->launch(cuda::Addition<Format>{.a = in_place, .b = right, .sum = in_place, .elements = count},
                nullptr);
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSERT_EQ(apart[i], Format::narrow(Format::widen(a[i]) + Format::widen(b[i]))) << i;
    ASSERT_EQ(in_place[i], apart[i]) << i;
  }
}

// In place, an element processed by two threads would be added twice.
TEST(Packs, TakeEveryElementOnceWhateverIsLeftOver) {
  for (const DataType type : kTypes) {
    for (const std::uint64_t count : kCounts) {
      for (const ThreadOrder order : kOrders) {
        SCOPED_TRACE(std::string(to_string(type)) + ", " + std::to_string(count));
        ops::with_format(type, [&]<class Format>(Format) { expect_sums<Format>(count, order); });
      }
    }
  }
}

template <class From, class To>
void expect_converted(std::uint64_t count) {
  const auto from = narrowed<From>(random_values(count, 707));
  Arrays arrays;
  auto* const to = arrays.add(std::vector<cuda::Stored<To>>(count));
  make_emulated_kernels(ThreadOrder::kRandom)
      ->launch(cuda::Conversion<From, To>{.from = arrays.add(from), .to = to, .elements = count}, nullptr);
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSERT_EQ(to[i], To::narrow(From::widen(from[i]))) << i;
  }
}

TEST(Packs, MayLieInTwoFormats) {
  for (const std::uint64_t count : kCounts) {
    SCOPED_TRACE(count);
    expect_converted<Fp32, Fp16>(count);
    expect_converted<Fp32, Bf16>(count);
    expect_converted<Fp16, Fp32>(count);
    expect_converted<Fp16, Bf16>(count);
    expect_converted<Bf16, Fp32>(count);
    expect_converted<Bf16, Fp16>(count);
  }
}

// On a GPU a misaligned access ends all work of the process with "misaligned address".
TEST(Packs, ThatAreMisalignedAreRefused) {
  Arrays arrays;
  std::uint16_t* const array = arrays.add(std::vector<std::uint16_t>(24));
  const auto table = make_emulated_kernels(ThreadOrder::kForward);
  const auto launch = [&](const std::uint16_t* from, std::uint16_t* to) {
    table->launch(cuda::ReluForward<Bf16>{.x = from, .y = to, .elements = 16}, nullptr);
  };
  EXPECT_NO_THROW(launch(array + 8, array));
  EXPECT_THROW(launch(array + 4, array), std::logic_error);
  EXPECT_THROW(launch(array, array + 1), std::logic_error);
}

// The copied rows have every word size, and lie between other columns of a wider table.
TEST(Copies, MoveTheirColumnsAndNothingElse) {
  constexpr std::uint64_t kRows = 5;
  for (const std::uint64_t row : {1, 2, 3, 8, 12, 16, 40}) {
    for (const std::uint64_t before : {0, 1, 2, 8}) {
      for (const std::uint64_t behind : {0, 1, 8}) {
        SCOPED_TRACE(std::to_string(before) + ", " + std::to_string(row) + ", " + std::to_string(behind));
        const std::uint64_t distance = before + row + behind;
        std::vector<std::uint16_t> values(kRows * distance);
        for (std::uint64_t i = 0; i < values.size(); ++i) {
          values[i] = static_cast<std::uint16_t>(1 + i);
        }
        Arrays arrays;
        const std::uint16_t* const table = arrays.add(values);
        std::uint16_t* const column = arrays.add(std::vector<std::uint16_t>(kRows * row));
        std::uint16_t* const back = arrays.add(std::vector<std::uint16_t>(values.size()));
        const auto kernels = make_emulated_kernels(ThreadOrder::kRandom);
        const auto columns = [](const std::uint16_t* first, std::uint64_t elements) {
          return cuda::Columns{.first = reinterpret_cast<std::uintptr_t>(first),
                               .distance = elements * sizeof(std::uint16_t)};
        };
        const std::uint64_t row_bytes = row * sizeof(std::uint16_t);
        launch_copy(Launcher(*kernels, nullptr), columns(table + before, distance), columns(column, row),
                    kRows, row_bytes);
        launch_copy(Launcher(*kernels, nullptr), columns(column, row), columns(back + before, distance),
                    kRows, row_bytes);
        for (std::uint64_t i = 0; i < values.size(); ++i) {
          const std::uint64_t place = i % distance;
          const bool copied = place >= before && place < before + row;
          ASSERT_EQ(back[i], copied ? values[i] : 0) << i;
        }
      }
    }
  }
}

// Sums squared differences, in one piece or in several. For whole numbers the sum is exact.
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

// Fewer channels than threads, as many, and more; one place, and enough places for several pieces.
const std::vector<Dims>& map_shapes() {
  static const std::vector<Dims> kShapes{{1, 1},      {3, 1, 700},    {2, 3, 5, 7}, {2, 3, 71, 93},
                                         {1, 255, 3}, {2, 256, 5},    {3, 257, 65}, {1, 700, 3},
                                         {70, 520},   {2, 128, 9, 61}};
  return kShapes;
}

template <class Format>
void expect_bias_gradient(const TensorType& type) {
  const auto channels = static_cast<std::size_t>(type.dims[1]);
  const auto dy = narrowed<Format>(random_values(type.elements(), 702));
  std::vector<double> want(channels);
  for (std::size_t i = 0; i < dy.size(); ++i) {
    want[i % channels] += static_cast<double>(Format::widen(dy[i]));
  }
  for (const ThreadOrder order : kOrders) {
    const auto table = make_emulated_kernels(order);
    Arrays arrays;
    float* const gradient = arrays.add(std::vector<float>(channels, NAN));
    launch_bias_gradient(Launcher(*table, nullptr), type, arrays.add(dy), gradient,
                         arrays.workspace(cuda::bias_gradient_bytes(type)));
    for (std::size_t c = 0; c < channels; ++c) {
      // Every term is a multiple of 2^-24 and at most 1, so that these sums are exact in double.
      ASSERT_EQ(gradient[c], static_cast<float>(want[c])) << "channel " << c;
    }
  }
}

TEST(Bias, GradientIsTheSumOverPlacesAndSamples) {
  for (const Dims& shape : map_shapes()) {
    for (const DataType data_type : kTypes) {
      const TensorType type{.data_type = data_type, .dims = shape};
      SCOPED_TRACE(to_string(shape) + std::string(", ") + to_string(data_type));
      ops::with_format(data_type, [&]<class Format>(Format) { expect_bias_gradient<Format>(type); });
    }
  }
}

template <class Format>
void expect_bias_added(const TensorType& type) {
  const auto x = narrowed<Format>(random_values(type.elements(), 703));
  const std::vector<float> bias = random_values(static_cast<std::uint64_t>(type.dims[1]), 704);
  const auto table = make_emulated_kernels(ThreadOrder::kRandom);
  Arrays arrays;
  auto* const apart = arrays.add(std::vector<cuda::Stored<Format>>(x.size()));
  auto* const in_place = arrays.add(x);
  const float* const added = arrays.add(bias);
  launch_bias(Launcher(*table, nullptr), type, arrays.add(x), added, apart);
  launch_bias(Launcher(*table, nullptr), type, in_place, added, in_place);
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(apart[i], Format::narrow(Format::widen(x[i]) + bias[i % bias.size()])) << i;
    ASSERT_EQ(in_place[i], apart[i]) << i;
  }
}

TEST(Bias, IsAddedToEachChannelInPlaceToo) {
  for (const Dims& shape : map_shapes()) {
    for (const DataType data_type : kTypes) {
      const TensorType type{.data_type = data_type, .dims = shape};
      SCOPED_TRACE(to_string(shape) + std::string(", ") + to_string(data_type));
      ops::with_format(data_type, [&]<class Format>(Format) { expect_bias_added<Format>(type); });
    }
  }
}

// Computes two elements of a launch with more than 2^31 elements and 2^32 blocks. No test could run the whole
// launch.
TEST(Kernels, GridsAreCountedIn64Bits) {
  constexpr std::uint64_t kMany = std::uint64_t{1} << 46;
  EXPECT_EQ(cuda::blocks_of(cuda::ReluForward<Fp32>{.elements = kMany}), 8192U);
  Divisor channels(3);
  EXPECT_EQ(channels.quotient(3 * kMany + 2), kMany);
  cuda::Workspace workspace;
  const cuda::RowSumsLayout<1> sums(workspace, 5, kMany);
  EXPECT_EQ(sums.pieces, kMany / 8192);
  EXPECT_EQ(workspace.bytes(), 256 + 5 * kMany / 8192 * 8);
}

TEST(Kernels, NoneIsLaunchedOverNothing) {
  const auto table = make_emulated_kernels(ThreadOrder::kForward);
  EXPECT_THROW(table->launch(cuda::ReluForward<Fp16>{}, nullptr), InvalidArgument);
}

}  // namespace
}  // namespace vdnn::testing
