#include "vdnn/frontier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace vdnn {
namespace {

Frontier of(const std::vector<Point>& points) {
  Frontier frontier;
  for (const Point& point : points) {
    frontier.join(point);
  }
  return frontier;
}

std::vector<Point> listed(const Frontier& frontier) {
  return {frontier.points().begin(), frontier.points().end()};
}

TEST(FrontierTest, StartsEmptyAndDominatesOnlyWhatIsReachedFromTheStart) {
  const Frontier frontier;
  EXPECT_TRUE(frontier.empty());
  EXPECT_EQ(frontier.count(3), 0U);
  EXPECT_TRUE(frontier.dominates(Point{.stream = 3, .count = 0}));
  EXPECT_FALSE(frontier.dominates(Point{.stream = 3, .count = 1}));
  EXPECT_TRUE(frontier.dominates(Frontier()));
}

TEST(FrontierTest, APointOfCountZeroAddsNothing) {
  EXPECT_TRUE(Frontier(Point{.stream = 1, .count = 0}).empty());
}

TEST(FrontierTest, JoinKeepsTheLaterPointOfAStream) {
  Frontier frontier = of({{.stream = 2, .count = 5}, {.stream = 2, .count = 3}});
  EXPECT_EQ(frontier.count(2), 5U);
  frontier.join(Point{.stream = 2, .count = 9});
  EXPECT_EQ(listed(frontier), (std::vector<Point>{{.stream = 2, .count = 9}}));
}

TEST(FrontierTest, PointsAreInOrderOfStreamWhicheverCameFirst) {
  const std::vector<Point> expected{
      {.stream = 1, .count = 4}, {.stream = 4, .count = 1}, {.stream = 9, .count = 2}};
  std::vector<Point> order = expected;
  std::ranges::sort(order, {}, &Point::count);
  do {
    EXPECT_EQ(listed(of(order)), expected);
  } while (std::ranges::next_permutation(order, {}, &Point::count).found);
}

TEST(FrontierTest, IncomparableFrontiersDominateNeitherWay) {
  const Frontier a = of({{.stream = 0, .count = 2}, {.stream = 1, .count = 1}});
  const Frontier b = of({{.stream = 0, .count = 1}, {.stream = 1, .count = 2}});
  EXPECT_FALSE(a.dominates(b));
  EXPECT_FALSE(b.dominates(a));
}

TEST(FrontierTest, JoiningItselfChangesNothing) {
  Frontier frontier = of({{.stream = 0, .count = 2}, {.stream = 1, .count = 1}});
  const Frontier before = frontier;
  frontier.join(frontier);
  EXPECT_EQ(frontier, before);
}

TEST(FrontierTest, ClearForgetsInlineAndSpilledPoints) {
  Frontier frontier;
  for (StreamId stream = 0; stream < 2 * Frontier::kInlinePoints; ++stream) {
    frontier.join(Point{.stream = stream, .count = 1});
  }
  frontier.clear();
  EXPECT_TRUE(frontier.empty());
  EXPECT_EQ(frontier.count(1), 0U);
  frontier.join(Point{.stream = 7, .count = 3});
  EXPECT_EQ(listed(frontier), (std::vector<Point>{{.stream = 7, .count = 3}}));
}

// Regression: after a move from a frontier with more points than fit inline, its number of points remained. A
// read then ran past the inline array.
TEST(FrontierTest, AMovedFromFrontierIsStillOne) {
  Frontier source;
  for (StreamId stream = 0; stream < 2 * Frontier::kInlinePoints; ++stream) {
    source.join(Point{.stream = stream, .count = stream + 1});
  }
  const Frontier copy = source;
  const Frontier target = std::move(source);
  EXPECT_EQ(target, copy);
  EXPECT_LE(source.points().size(), Frontier::kInlinePoints);  // NOLINT(bugprone-use-after-move)
  source = copy;
  EXPECT_EQ(source, copy);
}

// Compares with the definition: a map from streams to counts, whose join is the maximum.
class FrontierModel : public testing::TestWithParam<unsigned> {};

using Model = std::map<StreamId, std::uint64_t>;

std::pair<Frontier, Model> random_frontier(std::mt19937& random) {
  std::pair<Frontier, Model> result;
  const unsigned points = random() % 14;
  for (unsigned i = 0; i < points; ++i) {
    const Point point{.stream = static_cast<StreamId>(random() % 12), .count = random() % 4};
    result.first.join(point);
    if (point.count != 0) {
      std::uint64_t& count = result.second[point.stream];
      count = std::max(count, point.count);
    }
  }
  return result;
}

void expect_same(const Frontier& frontier, const Model& model) {
  std::vector<Point> expected;
  for (const auto& [stream, count] : model) {
    expected.push_back({.stream = stream, .count = count});
  }
  EXPECT_EQ(listed(frontier), expected);
  EXPECT_EQ(frontier.empty(), model.empty());
}

bool dominates(const Model& a, const Model& b) {
  return std::ranges::all_of(b, [&](const auto& point) {
    const auto it = a.find(point.first);
    return it != a.end() && it->second >= point.second;
  });
}

TEST_P(FrontierModel, AgreesWithAMapOfMaxima) {
  SCOPED_TRACE("reproduce: --gtest_filter=*AgreesWithAMapOfMaxima/" + std::to_string(GetParam()));
  std::mt19937 random(GetParam());
  for (int round = 0; round < 100; ++round) {
    auto [a, a_model] = random_frontier(random);
    const auto [b, b_model] = random_frontier(random);
    expect_same(a, a_model);
    EXPECT_EQ(a.dominates(b), dominates(a_model, b_model));
    EXPECT_EQ(a == b, a_model == b_model);
    a.join(b);
    for (const auto& [stream, count] : b_model) {
      a_model[stream] = std::max(a_model[stream], count);
    }
    expect_same(a, a_model);
    EXPECT_TRUE(a.dominates(b));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, FrontierModel, testing::Range(0U, 8U));

}  // namespace
}  // namespace vdnn
