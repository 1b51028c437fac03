#include "src/plan/lives.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace vdnn {

Lives::Lives(const Tape& tape, const Plan& plan) : tape_(tape) {
  for (const Recomputation& recomputation : plan.recomputations) {
    recomputed_.emplace_back(recomputation.value, recomputation.with);
  }
  for (const Transfer& transfer : plan.transfers) {
    released_.emplace_back(transfer.value, transfer.release_with);
  }
  std::ranges::sort(recomputed_);
  std::ranges::sort(released_);
}

OpId Lives::end(ValueId value, OpId start) const {
  const OpId recomputed = first(recomputed_, value, start + 1);
  const OpId released = first(released_, value, start);
  return last_use_before(value, released < recomputed ? kNone : recomputed);
}

// The op of the value's first event at op `from` or later; kNone if there is none.
OpId Lives::first(const std::vector<Event>& events, ValueId value, OpId from) {
  const auto found = std::ranges::lower_bound(events, Event(value, from));
  return found == events.end() || found->first != value ? kNone : found->second;
}

OpId Lives::last_use_before(ValueId value, OpId op) const {
  const std::span<const OpId> readers = tape_.readers(value);
  const auto found = std::ranges::lower_bound(readers, op);
  return found == readers.begin() ? tape_.producer(value) : *(found - 1);
}

std::vector<OpId> last_fetches(std::span<const Transfer> transfers) {
  std::vector<std::size_t> order(transfers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t each) {
    return std::pair(transfers[each].value, transfers[each].prefetch_with);
  });
  std::vector<OpId> result(transfers.size(), kNone);
  // The latest transfer that copies to the host. A later transfer that does not copy fetches from that
  // copy.
  std::size_t copy = 0;
  for (const std::size_t each : order) {
    if (transfers[each].offload_with != kNone) {
      copy = each;
    }
    if (transfers[copy].value == transfers[each].value) {
      result[copy] = transfers[each].prefetch_with;
    }
  }
  return result;
}

}  // namespace vdnn
