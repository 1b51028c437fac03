#include "src/stash/copies_in_flight.h"

#include <algorithm>

namespace vdnn::stash {

void CopiesInFlight::remove(StashHandle handle) noexcept {
  const auto found = std::ranges::find(copies_, handle, &Copy::handle);
  bytes_ -= found->tensor->bytes();
  copies_.erase(found);
}

const StashedTensor& CopiesInFlight::latest_of(std::size_t count) const {
  const auto end = copies_.begin() + static_cast<std::ptrdiff_t>(count);
  const auto number = [](const Copy& copy) { return copy.tensor->out_number; };
  return *std::ranges::max_element(copies_.begin(), end, {}, number)->tensor;
}

std::size_t CopiesInFlight::count_due(std::uint64_t limit, std::size_t capacity) const {
  std::size_t count = 0;
  for (std::uint64_t bytes = bytes_;
       count < std::min(capacity, copies_.size()) && is_due(copies_[count], bytes, limit); ++count) {
    bytes -= copies_[count].tensor->bytes();
  }
  return count;
}

}  // namespace vdnn::stash
