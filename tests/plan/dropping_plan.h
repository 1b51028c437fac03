#pragma once
// A plan of copies and recomputations for any tape, by a rule that knows no costs.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "vdnn/plan.h"
#include "vdnn/tape.h"

namespace vdnn::testing {

// Each value that the backward pass reads leaves the device between its last forward and its first backward
// use, if another op runs in between. The plan offloads every `offloaded`-th value (none if 0) and the
// results of collectives, and recomputes the others.
inline Plan dropping_plan(const Tape& tape, std::size_t offloaded, std::uint64_t placement_alignment = 0) {
  Plan plan = make_plan(tape, {.policy = Policy::kOffloadNone});
  plan.placement_alignment = placement_alignment;
  std::size_t count = 0;
  for (ValueId id = 0; id < tape.values().size(); ++id) {
    const ValueKind kind = tape.value(id).kind;
    const bool forward_value = kind == ValueKind::kFeatureMap || kind == ValueKind::kSaved;
    const auto readers = tape.readers(id);
    const auto after =
        std::ranges::find_if(readers, [&](OpId reader) { return tape.op(reader).phase == Phase::kBackward; });
    if (!forward_value || after == readers.end()) {
      continue;
    }
    const OpId producer = tape.producer(id);
    const OpId before = after == readers.begin() ? producer : *(after - 1);
    if (*after < before + 2) {
      continue;
    }
    // A collective must not run again.
    const bool collective = producer != kNone && tape.op(producer).collective();
    if (collective || (offloaded > 0 && ++count % offloaded == 0)) {
      plan.transfers.push_back({.value = id,
                                .offload_with = producer,
                                .release_with = before,
                                .prefetch_with = tape.forward_ops()});
    } else {
      plan.recomputations.push_back({.value = id, .with = *after});
    }
  }
  return plan;
}

}  // namespace vdnn::testing
