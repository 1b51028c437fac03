// Compares the number of dropped elements with the binomial distribution, at fixed seeds. A count may be off
// by five standard deviations, which random bits would exceed once in two million. Since the seeds are fixed,
// a test that has passed always passes.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "src/ops/dropout_mask.h"
#include "tests/ops/layer_cases.h"
#include "tests/ops/tested_library.h"
#include "vdnn/cpu_ops.h"
#include "vdnn/error.h"

namespace vdnn::testing::dropout_test {
namespace {

using reference::Array;

constexpr StepScalars kScalars{.step = 7, .seed = 20, .first_sample = 40};
constexpr std::uint64_t kKey = 3;

LayerCase layer_case(const Dims& dims, float probability, std::uint64_t key = kKey) {
  return same_shape_case("dropout", DropoutSpec{probability, key}, dims);
}

// The elements that forward and backward keep, found by running both passes on inputs of ones.
struct Masks {
  std::vector<bool> forward;
  std::vector<bool> backward;
};

std::vector<bool> kept(const Array& array) {
  std::vector<bool> mask;
  for (const double value : array.data) {
    mask.push_back(value != 0);
  }
  return mask;
}

Masks masks(OpLibrary& library, const LayerCase& layer, const StepScalars& scalars = kScalars) {
  OpHarness op(library, layer);
  Array ones(layer.output.dims);
  ones.data.assign(ones.data.size(), 1);
  op.set(kX, ones);
  op.set(kDY, ones);
  op.run(op.writer(kY), {.scalars = scalars});
  op.run(op.writer(kDX), {.scalars = scalars});
  return {.forward = kept(op.get(kY)), .backward = kept(op.get(kDX))};
}

// Fails unless `hits` is a plausible result of `trials` with this probability.
void expect_binomial(std::size_t hits, std::size_t trials, double probability) {
  const auto count = static_cast<double>(trials);
  const double deviation = std::sqrt(count * probability * (1 - probability));
  EXPECT_NEAR(static_cast<double>(hits), count * probability, 5 * deviation) << "of " << trials;
}

std::size_t agreements(const std::vector<bool>& a, const std::vector<bool>& b) {
  std::size_t hits = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    hits += a[i] == b[i] ? 1 : 0;
  }
  return hits;
}

// Independent masks agree in an element if both keep it or both drop it; the test checks the number of
// agreements.
void expect_independent(const std::vector<bool>& a, const std::vector<bool>& b, double probability) {
  ASSERT_EQ(a.size(), b.size());
  expect_binomial(agreements(a, b), a.size(),
                  probability * probability + (1 - probability) * (1 - probability));
}

const std::vector<Dims> kShapes{{3, 5}, {2, 7, 3, 5}, {1, 3, 4, 5, 6}, {5, 33, 13, 11}};

class DropoutTest : public ::testing::TestWithParam<TestedLibrary> {
 protected:
  std::unique_ptr<OpLibrary> library_ = GetParam().make();
};

TEST_P(DropoutTest, ScalesWhatItKeepsAndDropsTheRest) {
  constexpr float kProbability = 0.3F;
  const float scale = 1 / (1 - kProbability);
  for (const Dims& shape : kShapes) {
    SCOPED_TRACE(to_string(shape));
    OpHarness op(*library_, layer_case(shape, kProbability));
    const Masks of = masks(*library_, layer_case(shape, kProbability));
    EXPECT_EQ(of.forward, of.backward);
    const Array x = random_array(shape, 70);
    const Array dy = random_array(shape, 71);
    op.set(kX, x);
    op.set(kDY, dy);
    op.run(op.writer(kY), {.scalars = kScalars});
    op.run(op.writer(kDX), {.scalars = kScalars});
    const Array y = op.get(kY);
    const Array dx = op.get(kDX);
    for (std::size_t i = 0; i < y.data.size(); ++i) {
      const auto scaled = [&](const Array& array) {
        return of.forward[i] ? static_cast<double>(scale * static_cast<float>(array.data[i])) : 0.0;
      };
      // The library may round the scale differently.
      ASSERT_NEAR(y.data[i], scaled(x), 0x1p-22 * std::abs(scaled(x))) << i;
      ASSERT_NEAR(dx.data[i], scaled(dy), 0x1p-22 * std::abs(scaled(dy))) << i;
    }
  }
}

TEST_P(DropoutTest, DropsAsManyAsItShould) {
  const Dims shape{4, 64, 16, 17};
  for (const float probability : {0.01F, 0.25F, 0.5F, 0.9F}) {
    SCOPED_TRACE(probability);
    const std::vector<bool> mask = masks(*library_, layer_case(shape, probability)).forward;
    expect_binomial(static_cast<std::size_t>(std::count(mask.begin(), mask.end(), false)), mask.size(),
                    static_cast<double>(probability));
  }
}

TEST_P(DropoutTest, ProbabilityZeroIsACopyAndTheLargestDropsNearlyAll) {
  const Dims shape{2, 7, 3, 5};
  OpHarness op(*library_, layer_case(shape, 0));
  const Array x = random_array(shape, 72);
  op.set(kX, x);
  op.run(op.writer(kY), {.scalars = kScalars});
  expect_equal(op.get(kY), x);
  const float largest = std::nextafter(1.0F, 0.0F);
  const std::vector<bool> mask = masks(*library_, layer_case(shape, largest)).forward;
  EXPECT_EQ(std::count(mask.begin(), mask.end(), true), 0);
}

// Different steps, seeds, samples and layers have different masks.
TEST_P(DropoutTest, MasksOfDifferentKeysAreIndependent) {
  constexpr float kProbability = 0.4F;
  const Dims shape{1, 64, 16, 16};
  const auto mask = [&](const StepScalars& scalars, std::uint64_t key) {
    return masks(*library_, layer_case(shape, kProbability, key), scalars).forward;
  };
  const std::vector<bool> base = mask(kScalars, kKey);
  StepScalars step = kScalars;
  ++step.step;
  StepScalars seed = kScalars;
  ++seed.seed;
  StepScalars sample = kScalars;
  ++sample.first_sample;
  // A key made of the sum or the XOR of step and seed would not distinguish these two.
  StepScalars exchanged = kScalars;
  std::swap(exchanged.step, exchanged.seed);
  for (const std::vector<bool>& other : {mask(step, kKey), mask(seed, kKey), mask(sample, kKey),
                                         mask(exchanged, kKey), mask(kScalars, kKey + 1)}) {
    expect_independent(base, other, static_cast<double>(kProbability));
  }
  StepScalars rate = kScalars;
  rate.learning_rate = 0.5F;
  EXPECT_EQ(mask(rate, kKey), base);
}

// The distances pair elements of one draw, of neighbouring draws, of neighbouring rows and of different
// channels.
TEST_P(DropoutTest, ElementsAreIndependent) {
  constexpr double kProbability = 0.5;
  const std::vector<bool> mask = masks(*library_, layer_case({1, 32, 64, 64}, 0.5F)).forward;
  for (const std::size_t distance : {1, 2, 3, 4, 32, 64, 2048, 4096}) {
    SCOPED_TRACE(distance);
    expect_independent({mask.begin(), mask.end() - static_cast<std::ptrdiff_t>(distance)},
                       {mask.begin() + static_cast<std::ptrdiff_t>(distance), mask.end()}, kProbability);
  }
}

// Several devices or micro-batches draw the same masks as a single one, even if a sample has an odd number of
// elements.
TEST_P(DropoutTest, MasksDoNotDependOnHowABatchIsSplit) {
  const Dims sample{1, 33, 13, 11};
  Dims batch = sample;
  batch[0] = 5;
  const std::vector<bool> whole = masks(*library_, layer_case(batch, 0.5F)).forward;
  std::vector<bool> joined;
  for (std::uint64_t i = 0; i < 5; ++i) {
    StepScalars scalars = kScalars;
    scalars.first_sample += i;
    const std::vector<bool> part = masks(*library_, layer_case(sample, 0.5F), scalars).forward;
    joined.insert(joined.end(), part.begin(), part.end());
  }
  EXPECT_EQ(joined, whole);
}

// A network must be the same on every device.
TEST_P(DropoutTest, NeitherThreadsNorDevicesChangeTheMask) {
  const auto single = make_cpu_ops({.threads = 1});
  for (const Dims& shape : kShapes) {
    const LayerCase layer = layer_case(shape, 0.5F);
    EXPECT_EQ(masks(*library_, layer).forward, masks(*single, layer).forward);
  }
}

TEST_P(DropoutTest, InPlaceEqualsOutOfPlace) {
  for (const Dims& shape : kShapes) {
    for (const Mode mode : {Mode::kTraining, Mode::kInference}) {
      OpHarness op(*library_, layer_case(shape, 0.5F), mode);
      for (const OpRecipe& recipe : op.recipes()) {
        EXPECT_FALSE(recipe.may_overwrite.empty());
      }
      expect_in_place_equals_apart(op, [&] {
        op.set(kX, random_array(shape, 73));
        if (mode == Mode::kTraining) {
          op.set(kDY, random_array(shape, 74));
        }
      });
    }
  }
}

TEST_P(DropoutTest, InferenceIsACopy) {
  for (const Dims& shape : kShapes) {
    OpHarness op(*library_, layer_case(shape, 0.5F), Mode::kInference);
    ASSERT_EQ(op.recipes().size(), 1U);
    const Array x = random_array(shape, 75);
    op.set(kX, x);
    op.run(0, {.scalars = kScalars});
    expect_equal(op.get(kY), x);
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, DropoutTest, ::testing::ValuesIn(tested_libraries({1, 2, 3})),
                         [](const auto& test) { return test.param.name(); });

// A dropped infinity becomes zero; a kept one remains.
TEST_P(DropoutTest, DropsInfinitiesToo) {
  const Dims shape{1, 64};
  const std::vector<bool> mask = masks(*library_, layer_case(shape, 0.5F)).forward;
  OpHarness op(*library_, layer_case(shape, 0.5F));
  Array x(shape);
  x.data.assign(x.data.size(), std::numeric_limits<double>::infinity());
  op.set(kX, x);
  op.run(op.writer(kY), {.scalars = kScalars});
  const Array y = op.get(kY);
  for (std::size_t i = 0; i < y.data.size(); ++i) {
    EXPECT_EQ(y.data[i], mask[i] ? x.data[i] : 0.0);
  }
}

TEST_P(DropoutTest, RefusesProbabilitiesThatAreNone) {
  const TensorType type{.dims = {2, 3}};
  for (const float probability : {-0.1F, 1.0F, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THROW(library_->catalog().recipe(DropoutSpec{probability}, std::array{type}, std::array{type},
                                            Mode::kTraining),
                 InvalidArgument);
  }
}

// The masks use the draws of the sequential generator, whose quality is known. Every device must make the
// same draws.
TEST(DropoutMask, IsTheSequentialGenerators) {
  constexpr std::uint64_t kGamma = 0x9e3779b97f4a7c15;
  std::uint64_t start = mix64(kScalars.seed);
  for (const std::uint64_t next : {kScalars.step, std::uint64_t{41}, kKey}) {
    start = mix64((start + kGamma) ^ next);
  }
  SplitMix64 sequence(start);
  const ops::DropoutMask mask(DropoutSpec{0.25F, kKey}, kScalars, 41);
  for (std::uint64_t pair = 0; pair < 1000; ++pair) {
    const std::uint64_t draw = sequence.next();
    const auto [first, second] = mask.kept(pair);
    ASSERT_EQ(first, (draw & 0xffffffff) >= 0x40000000) << pair;
    ASSERT_EQ(second, draw >> 32 >= 0x40000000) << pair;
  }
}

}  // namespace
}  // namespace vdnn::testing::dropout_test
