#pragma once
// The choices of a construction come from a seed, or from every combination in turn, like an odometer. The
// caller runs the construction once per combination, without knowing their number.

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

  // Returns a number below bound > 0. The existence and the bound of later choices may depend on earlier
  // ones.
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
  // Returns a number in [first, last]. Half of the random ones are near `origin`.
  std::uint32_t between(std::uint32_t first, std::uint32_t last, std::uint32_t origin) {
    constexpr std::uint32_t kNear = 8;
    if (random_ && coin()) {
      first = std::max(first, origin - std::min(origin, kNear));
      last = std::min(last, origin + kNear);
    }
    return first + below(last - first + 1);
  }

  // For all(): goes to the next combination and returns false after the last.
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
  std::size_t made_ = 0;  // choices made in this combination
};

}  // namespace vdnn::testing
