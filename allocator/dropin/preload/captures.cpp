#include "allocator/dropin/preload/captures.h"

#include <algorithm>

namespace vdnn::preload {

std::uint64_t Captures::begin(const NamedStream& stream) {
  const std::lock_guard lock(mutex_);
  captures_.push_back({.number = ++last_, .stream = stream, .begun = false});
  count_ = captures_.size();
  return last_;
}

void Captures::has_begun(std::uint64_t capture, bool begun) {
  remove_if([&](Capture& each) {
    const bool is_it = each.number == capture;
    each.begun = each.begun || is_it;
    return is_it && !begun;
  });
}

std::uint64_t Captures::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

void Captures::end(const NamedStream& stream, std::uint64_t last) {
  if (count_ != 0) {
    remove_if(
        [&](const Capture& each) { return each.begun && each.number <= last && each.stream.is(stream); });
  }
}

std::optional<NamedStream> Captures::take(int ordinal) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(
      captures_, [&](const Capture& each) { return each.begun && each.stream.ordinal == ordinal; });
  if (found == captures_.end()) {
    return std::nullopt;
  }
  const NamedStream stream = found->stream;
  captures_.erase(found);
  count_ = captures_.size();
  return stream;
}

}  // namespace vdnn::preload
