#include "allocator/granule_views.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <new>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fakes/heap.h"
#include "vdnn/error.h"

namespace vdnn {
namespace {

using Granule = GranuleViews::Granule;
using View = GranuleViews::View;

Frontier at(StreamId stream, std::uint64_t count) {
  return Frontier(Point{.stream = stream, .count = count});
}

// Adds what is missing.
GranuleViews::Taken take(GranuleViews& views, std::size_t granules) {
  views.add_granules(views.missing(granules));
  return views.take(granules).value();
}

std::vector<Granule> granules_of(const GranuleViews& views, View view) {
  const std::span<const Granule> granules = views.granules(view);
  return {granules.begin(), granules.end()};
}

TEST(GranuleViews, AreMadeOfFreeGranulesOrNotAtAll) {
  GranuleViews views;
  EXPECT_EQ(views.missing(2), 2U);
  EXPECT_FALSE(views.take(2));
  EXPECT_EQ(views.add_granules(3), (std::vector<Granule>{0, 1, 2}));
  const auto taken = views.take(2);
  ASSERT_TRUE(taken);
  EXPECT_TRUE(taken->made);
  EXPECT_TRUE(taken->frontier.empty());
  EXPECT_EQ(granules_of(views, taken->view), (std::vector<Granule>{0, 1}));
  EXPECT_EQ(views.free_count(), 1U);
  EXPECT_EQ(views.missing(2), 1U);
  EXPECT_FALSE(views.take(2));
}

TEST(GranuleViews, OfTheSameSizeAreTakenAgain) {
  GranuleViews views;
  const auto first = take(views, 4);
  views.give_back(first.view, at(0, 7));
  const auto again = views.take(4);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->view, first.view);
  EXPECT_FALSE(again->made);
  EXPECT_EQ(again->frontier, at(0, 7));
  EXPECT_EQ(views.mapped_count(), 4U);
}

// What fragments any placement of offsets: two holes, neither of which is large enough.
TEST(GranuleViews, OfAnotherSizeAreMadeOfTheGranulesOfSeveral) {
  GranuleViews views;
  const View left = take(views, 3).view;
  const View between = take(views, 1).view;
  const View right = take(views, 3).view;
  views.give_back(left, at(0, 1));
  views.give_back(right, at(1, 5));
  const auto both = views.take(6);
  ASSERT_TRUE(both);
  EXPECT_TRUE(both->made);
  Frontier users = at(0, 1);
  users.join(at(1, 5));
  EXPECT_EQ(both->frontier, users);
  EXPECT_EQ(granules_of(views, both->view), (std::vector<Granule>{0, 1, 2, 4, 5, 6}));
  EXPECT_EQ(views.granule_count(), 7U);
  EXPECT_EQ(views.mapped_count(), 13U);
  EXPECT_FALSE(views.take(3)) << "both views of that size are in the way of one in use";
  views.give_back(both->view, at(2, 1));
  const auto again = views.take(3);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->view, left) << "the first that was made";
  EXPECT_TRUE(again->frontier.dominates(at(2, 1))) << "who used its granules through another view";
  EXPECT_TRUE(views.in_use(between));
}

TEST(GranuleViews, ThatWereNotUsedKeepWhatTheyWereHandedOutWith) {
  GranuleViews views;
  const auto large = take(views, 2);
  views.give_back(large.view, at(3, 9));
  const auto small = views.take(1);
  views.give_back(small->view, {});
  EXPECT_EQ(views.last_use(small->view), at(3, 9));
}

TEST(GranuleViews, ThatCannotBeAreRefusedAndNothingChanges) {
  GranuleViews views;
  const View view = take(views, 2).view;
  EXPECT_THROW(views.take(0), InvalidArgument);
  EXPECT_THROW(views.give_back(view + 1, {}), InvalidArgument);
  EXPECT_THROW(views.drop(view), InvalidArgument) << "it is in use";
  EXPECT_THROW(views.drop(view + 1), InvalidArgument);
  EXPECT_THROW(views.remove_granule(0), InvalidArgument) << "it is in use";
  EXPECT_THROW(views.remove_granule(9), InvalidArgument);
  views.give_back(view, {});
  EXPECT_THROW(views.give_back(view, {}), InvalidArgument) << "a second time";
  EXPECT_THROW(views.remove_granule(0), InvalidArgument) << "it has a view";
  EXPECT_EQ(views.free_count(), 2U);
  EXPECT_EQ(views.mapped_count(), 2U);
  EXPECT_EQ(views.take(2)->view, view);
}

TEST(GranuleViews, AreForgottenBeforeTheirGranules) {
  GranuleViews views;
  const View large = take(views, 3).view;
  views.give_back(large, at(0, 1));
  const View small = views.take(1)->view;
  views.give_back(small, at(0, 2));
  EXPECT_EQ(views.coldest(), large);
  EXPECT_EQ(views.views_of(0), (std::vector<View>{large, small}));
  EXPECT_EQ(views.views_of(2), (std::vector<View>{large}));
  views.drop(large);
  EXPECT_EQ(views.mapped_count(), 1U);
  views.remove_granule(2);
  EXPECT_EQ(views.granule_count(), 2U);
  EXPECT_EQ(views.coldest(), small);
  EXPECT_EQ(views.missing(3), 1U);
  EXPECT_EQ(views.add_granules(2), (std::vector<Granule>{2, 3})) << "its number is given again";
  EXPECT_EQ(granules_of(views, views.take(4)->view), (std::vector<Granule>{0, 1, 2, 3}));
}

// --- against a naive model -------------------------------------------------------------------------------

// One entry a granule, and every use of it that was ever told.
class Model {
 public:
  void add(const std::vector<Granule>& granules) {
    for (const Granule granule : granules) {
      ASSERT_FALSE(granules_.contains(granule));
      granules_[granule] = {};
    }
  }
  void take(const GranuleViews::Taken& taken, std::span<const Granule> granules) {
    for (const Granule granule : granules) {
      ASSERT_TRUE(granules_.contains(granule));
      State& state = granules_[granule];
      ASSERT_FALSE(state.used) << "granule " << granule << " in two blocks";
      state.used = true;
      ASSERT_TRUE(taken.frontier.dominates(state.users)) << "granule " << granule;
    }
  }
  // Whoever used it was ordered after what it was handed out with.
  void give_back(View view, std::span<const Granule> granules, const Frontier& last_use) {
    for (const Granule granule : granules) {
      State& state = granules_[granule];
      state.used = false;
      if (!last_use.empty()) {
        state.users = last_use;
        state.through = view;
      }
    }
  }
  // What was done through the view has been reached.
  void drop(View view, std::span<const Granule> granules) {
    for (const Granule granule : granules) {
      if (granules_[granule].through == view) {
        granules_[granule].users = {};
      }
    }
  }
  void remove(Granule granule) { granules_.erase(granule); }
  std::size_t size() const { return granules_.size(); }
  std::size_t free() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(granules_, [](const auto& entry) { return !entry.second.used; }));
  }

 private:
  struct State {
    bool used = false;
    Frontier users;
    std::optional<View> through;
  };
  std::map<Granule, State> granules_;
};

class RandomProgram {
 public:
  explicit RandomProgram(std::uint64_t seed) : random_(seed) {}

  void run(int operations) {
    for (int i = 0; i < operations && !::testing::Test::HasFatalFailure(); ++i) {
      operation();
      ASSERT_EQ(views_.granule_count(), model_.size());
      ASSERT_EQ(views_.free_count(), model_.free());
    }
    while (!live_.empty()) {
      give_back(live_.size() - 1);
    }
    EXPECT_EQ(views_.free_count(), views_.granule_count());
    while (const std::optional<View> view = views_.coldest()) {
      views_.drop(*view);
    }
    EXPECT_EQ(views_.mapped_count(), 0U);
  }

 private:
  struct Block {
    View view = 0;
    Frontier frontier;
  };

  std::uint64_t below(std::uint64_t end) { return random_() % end; }

  void operation() {
    switch (below(20)) {
      case 0:
        if (const std::optional<View> view = views_.coldest()) {
          drop(*view);
        }
        break;
      case 1:
        remove();
        break;
      default:
        if (live_.empty() || below(2) == 0) {
          take();
        } else {
          give_back(below(live_.size()));
        }
    }
  }

  void take() {
    const std::size_t granules = 1 + below(12);
    if (views_.granule_count() < 40) {
      model_.add(views_.add_granules(views_.missing(granules)));
    }
    const std::size_t missing = views_.missing(granules);
    const auto taken = views_.take(granules);
    ASSERT_EQ(taken.has_value(), missing == 0);
    if (taken) {
      ASSERT_EQ(views_.granules(taken->view).size(), granules);
      model_.take(*taken, views_.granules(taken->view));
      live_.push_back({.view = taken->view, .frontier = taken->frontier});
    }
  }

  // Used by a stream that waited for what it had to, or not at all.
  void give_back(std::size_t index) {
    const Block block = live_[index];
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(index));
    Frontier last_use;
    if (below(4) != 0) {
      last_use = block.frontier;
      const auto stream = static_cast<StreamId>(below(5));
      last_use.join(Point{.stream = stream, .count = ++submitted_[stream]});
    }
    views_.give_back(block.view, last_use);
    model_.give_back(block.view, views_.granules(block.view), last_use);
  }

  void drop(View view) {
    model_.drop(view, views_.granules(view));
    views_.drop(view);
  }

  void remove() {
    for (const Granule granule : views_.free_granules(1)) {
      for (const View view : views_.views_of(granule)) {
        if (views_.in_use(view)) {
          return;
        }
      }
      for (const View view : views_.views_of(granule)) {
        drop(view);
      }
      views_.remove_granule(granule);
      model_.remove(granule);
    }
  }

  std::mt19937_64 random_;
  GranuleViews views_;
  Model model_;
  std::vector<Block> live_;
  std::map<StreamId, std::uint64_t> submitted_;
};

TEST(GranuleViews, AgreeWithANaiveModel) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomProgram(seed).run(400);
    if (HasFatalFailure()) {
      return;
    }
  }
}

// --- steps -----------------------------------------------------------------------------------------------

struct Event {
  std::size_t block = 0;
  std::size_t granules = 0;  // 0: it is freed
};

// Blocks of a handful of sizes, each allocated once and freed once.
std::vector<Event> random_step(std::mt19937_64& random) {
  std::vector<Event> step;
  std::vector<std::size_t> live;
  for (std::size_t block = 0; block < 60; ++block) {
    step.push_back({.block = block, .granules = 1 + random() % 9});
    live.push_back(block);
    while (!live.empty() && random() % 2 == 0) {
      const std::size_t index = random() % live.size();
      step.push_back({.block = live[index]});
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(index));
    }
  }
  for (const std::size_t block : live) {
    step.push_back({.block = block});
  }
  return step;
}

// The views that a step is given, in the order of its blocks; and how many were made for it.
std::pair<std::vector<View>, int> run_step(GranuleViews& views, const std::vector<Event>& step) {
  std::vector<View> given;
  int made = 0;
  for (const Event& event : step) {
    if (event.granules > 0) {
      const GranuleViews::Taken taken = take(views, event.granules);
      given.push_back(taken.view);
      made += taken.made ? 1 : 0;
    } else {
      views.give_back(given[event.block], at(0, 1));
    }
  }
  return {given, made};
}

std::size_t peak(const std::vector<Event>& step) {
  std::vector<std::size_t> sizes;
  std::size_t live = 0;
  std::size_t peak = 0;
  for (const Event& event : step) {
    if (event.granules > 0) {
      sizes.push_back(event.granules);
      live += event.granules;
    } else {
      live -= sizes[event.block];
    }
    peak = std::max(peak, live);
  }
  return peak;
}

TEST(GranuleViews, OfARepeatedStepAreMadeInTheFirstAloneAndHoldWhatIsLive) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const std::vector<Event> step = random_step(random);
    GranuleViews views;
    const auto [given, made] = run_step(views, step);
    EXPECT_GT(made, 0);
    EXPECT_EQ(views.granule_count(), peak(step));
    for (int repetition = 0; repetition < 3; ++repetition) {
      const std::uint64_t before = heap_allocations();
      const auto [again, made_again] = run_step(views, step);
      EXPECT_EQ(again, given);
      EXPECT_EQ(made_again, 0);
      // The vector above grows, nothing else may.
      EXPECT_LE(heap_allocations() - before, 8U);
    }
  }
}

// --- no memory ---------------------------------------------------------------------------------------------

std::vector<std::vector<Granule>> shapes(const GranuleViews& views, const std::vector<View>& of) {
  std::vector<std::vector<Granule>> shapes;
  shapes.reserve(of.size());
  for (const View view : of) {
    shapes.push_back(granules_of(views, view));
  }
  return shapes;
}

// The heap fails at each call in turn; what could not be done is then done without a failure, and all is as
// if nothing had happened.
TEST(GranuleViews, AreAsTheyWereWhereThereWasNoMemory) {
  std::mt19937_64 random(1);
  const std::vector<Event> step = random_step(random);
  GranuleViews undisturbed;
  const auto [expected, made] = run_step(undisturbed, step);
  int failures = 0;
  GranuleViews views;
  std::vector<View> given;
  for (const Event& event : step) {
    for (std::uint64_t fail_at = 1;; ++fail_at) {
      const std::size_t mapped = views.mapped_count();
      const std::size_t free = views.free_count();
      std::optional<GranuleViews::Taken> taken;
      try {
        const HeapFailure failure(fail_at);
        if (event.granules > 0) {
          views.add_granules(views.missing(event.granules));
          taken = views.take(event.granules);
        } else {
          views.give_back(given[event.block], at(0, 1));
        }
      } catch (const std::bad_alloc&) {
        ++failures;
        EXPECT_EQ(views.mapped_count(), mapped);
        EXPECT_GE(views.free_count(), free);
        continue;
      }
      if (taken) {
        given.push_back(taken->view);
      }
      break;
    }
  }
  EXPECT_GT(failures, 100);
  EXPECT_EQ(shapes(views, given), shapes(undisturbed, expected));
  EXPECT_EQ(views.mapped_count(), undisturbed.mapped_count());
}

}  // namespace
}  // namespace vdnn
