#pragma once
// Where a construction with choices takes them from: a seed, or every combination in turn, as an odometer
// counts. The construction is run once a combination and need not know how many there are.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

namespace vdnn::testing {

class Choices {
 public:
  explicit Choices(std::uint64_t seed) : random_(seed) {}
  static Choices all() { return Choices(); }

  // bound > 0. Whether there is a second choice, and with which bound, may depend on the first.
  std::uint32_t below(std::uint32_t bound) {
    if (random_) {
      return static_cast<std::uint32_t>((*random_)() % bound);
    }
    if (made_ == trail_.size()) {
      trail_.push_back({.value = 0, .bound = bound});
    }
    return trail_[made_++].value;
  }
  bool coin() { return below(2) == 0; }
  // Of [first, last]; random ones are near `origin` half of the time.
  std::uint32_t between(std::uint32_t first, std::uint32_t last, std::uint32_t origin) {
    constexpr std::uint32_t kNear = 8;
    if (random_ && coin()) {
      first = std::max(first, origin - std::min(origin, kNear));
      last = std::min(last, origin + kNear);
    }
    return first + below(last - first + 1);
  }

  // Of all(): goes to the next combination; false after the last.
  bool next() {
    made_ = 0;
    while (!trail_.empty()) {
      if (++trail_.back().value < trail_.back().bound) {
        return true;
      }
      trail_.pop_back();
    }
    return false;
  }

 private:
  struct Wheel {
    std::uint32_t value = 0;
    std::uint32_t bound = 0;
  };

  Choices() = default;

  std::optional<std::mt19937_64> random_;
  std::vector<Wheel> trail_;
  std::size_t made_ = 0;  // choices of the combination at hand
};

}  // namespace vdnn::testing
