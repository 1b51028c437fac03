#include "src/stash/known_steps.h"

#include <algorithm>
#include <span>
#include <utility>

namespace vdnn::stash {

namespace {

bool goes_on_with(const KnownStep& kind, std::size_t index, const StepTensor& next) {
  return index < kind.record.tensors.size() && is_same_tensor(kind.record.tensors[index], next);
}

bool begins_as(const KnownStep& kind, const std::vector<StepTensor>& begun) {
  const std::vector<StepTensor>& tensors = kind.record.tensors;
  return begun.size() <= tensors.size() &&
         std::ranges::equal(begun, std::span(tensors).first(begun.size()), is_same_tensor);
}

}  // namespace

const KnownStep* KnownSteps::find(const KnownStep* current, const std::vector<StepTensor>& begun,
                                  const StepTensor& next) const {
  if (current != nullptr && goes_on_with(*current, begun.size(), next)) {
    return current;
  }
  if (current == nullptr && !begun.empty()) {
    return nullptr;  // none began like this
  }
  const auto found = std::ranges::find_if(kinds_, [&](const KnownStep& kind) {
    return goes_on_with(kind, begun.size(), next) && begins_as(kind, begun);
  });
  return found == kinds_.end() ? nullptr : &*found;
}

bool KnownSteps::repeat(const KnownStep* kind, const StepRecord& step, const StepLimits& limits) {
  const auto found = std::ranges::find_if(kinds_, [&](const KnownStep& each) { return &each == kind; });
  kinds_.splice(kinds_.begin(), kinds_, found);
  bool is_news = false;
  for (std::size_t i = 0; i < step.tensors.size(); ++i) {
    StepTensor& known = found->record.tensors[i];
    is_news = is_news || (step.tensors[i].stays && !known.stays);
    known.stays = known.stays || step.tensors[i].stays;
  }
  if (is_news) {
    found->leaves = choose_leaving(found->record, limits);
  }
  return is_news;
}

void KnownSteps::learn(StepRecord step, const StepLimits& limits) {
  std::vector<StepRead> reads = read_order(step);
  std::vector<bool> leaves = choose_leaving(step, limits);
  kinds_.push_front({.record = std::move(step), .reads = std::move(reads), .leaves = std::move(leaves)});
  if (kinds_.size() > kMostKinds) {
    kinds_.pop_back();
  }
}

}  // namespace vdnn::stash
