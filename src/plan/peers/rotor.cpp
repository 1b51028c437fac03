#include "src/plan/peers/rotor.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace vdnn::peers {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::size_t kNotYet = ~std::size_t{0};

}  // namespace

Rotor::Rotor(std::vector<Stage> chain, std::uint64_t most_bytes, std::size_t limits)
    : chain_(std::move(chain)),
      limits_(limits),
      slot_bytes_(std::max<std::uint64_t>((most_bytes + limits - 1) / limits, 1)),
      best_(chain_.size() * chain_.size() * (limits + 1), {.seconds = kNever, .next = 0}) {
  for (std::size_t length = 0; length < chain_.size(); ++length) {
    for (std::size_t first = 0; first + length < chain_.size(); ++first) {
      for (std::size_t limit = 0; limit <= limits; ++limit) {
        const std::size_t last = first + length;
        best_[(first * chain_.size() + last) * (limits_ + 1) + limit] = find_best(first, last, limit);
      }
    }
  }
}

Rotor::Best Rotor::find_best(std::size_t first, std::size_t last, std::size_t limit) const {
  Best found{.seconds = kNever, .next = 0};
  consider_saving_all(first, last, limit, found);
  consider_keeping_one(first, last, limit, found);
  return found;
}

void Rotor::consider_saving_all(std::size_t first, std::size_t last, std::size_t limit, Best& found) const {
  const Stage& stage = chain_[first];
  const std::size_t saved = slots(stage.saved_bytes);
  if (saved + slots(std::max(stage.forward_bytes, stage.backward_bytes)) > limit) {
    return;
  }
  const double rest = first == last ? 0 : best(first + 1, last, limit - saved).seconds;
  found.seconds = stage.forward_seconds + rest + stage.backward_seconds;
}

// Of several stages whose outputs lead to the same time, chooses the first.
void Rotor::consider_keeping_one(std::size_t first, std::size_t last, std::size_t limit, Best& found) const {
  double swept = 0;
  std::size_t input = 0;  // slots of the stage's input; 0 for the input of the stretch
  for (std::size_t next = first + 1; next <= last; ++next) {
    const Stage& stage = chain_[next - 1];
    const std::size_t output = slots(stage.output_bytes);
    if (input + output + slots(stage.forward_bytes) > limit) {
      return;  // the sweep cannot continue to later stages either
    }
    input = output;
    swept += stage.forward_seconds;
    const double seconds =
        swept + best(next, last, limit - output).seconds + best(first, next - 1, limit).seconds;
    if (seconds < found.seconds) {
      found = {.seconds = seconds, .next = next};
    }
  }
}

std::optional<std::vector<Saving>> Rotor::savings(std::size_t limit) const {
  if (seconds(limit) == kNever) {
    return std::nullopt;
  }
  std::vector<Saving> savings(chain_.size(), {.output = kNotYet, .all = kNotYet});
  follow(0, chain_.size() - 1, limit, chain_.size(), savings);
  return savings;
}

void Rotor::follow(std::size_t first, std::size_t last, std::size_t limit, std::size_t sweep,
                   std::vector<Saving>& savings) const {
  const std::size_t next = best(first, last, limit).next;
  if (next == 0) {
    savings[first].all = sweep;
    savings[first].output = savings[first].output == kNotYet ? sweep : savings[first].output;
    if (first < last) {
      follow(first + 1, last, limit - slots(chain_[first].saved_bytes), sweep, savings);
    }
    return;
  }
  savings[next - 1].output = sweep;
  follow(next, last, limit - slots(chain_[next - 1].output_bytes), sweep, savings);
  follow(first, next - 1, limit, next - 1, savings);
}

}  // namespace vdnn::peers
