#pragma once
// Which values leave, so that a step fits in so many bytes. The question is one of covering: at each slot so
// many bytes are too much, and the gaps that lie over the slot can give theirs. Offloading costs nothing
// while the link keeps up, and the link's rate beyond; recomputing costs what it takes. A *recipe* says in
// which order that is tried; which one is best depends on network and budget, so that the search tries them
// all.

#include <cstdint>
#include <vector>

#include "src/plan/optimal/problem.h"
#include "src/plan/optimal/segment_tree.h"

namespace vdnn::optimal {

struct Recipe {
  // Recompute what costs no more than so many times what moving its bytes both ways takes, first.
  double recompute_price = 0;
  // Then offload, in the order in which values are made, until the copies take so many times the time of the
  // forward pass; then recompute the cheapest; then offload the rest.
  double link_share = 0;
  // Of what could be recomputed, keep or offload a value whenever so large a part of the memory would have to
  // be made again at once. 0: no such limit.
  double checkpoint_share = 0;
  // Only such values at which the forward pass can be cut in two.
  bool checkpoint_at_cuts = false;
  // Make room for the fastest algorithms.
  bool fast_algorithms = true;
};

std::vector<Recipe> recipes();

class Selection {
 public:
  Selection(const Problem& problem, std::uint64_t host_bytes);

  // Any plan takes as many.
  std::uint64_t least_bytes() const;

  // `too_much`: bytes to be gained at a slot beyond what the sizes say, as an earlier attempt has shown.
  Fates select(const Recipe& recipe, std::uint64_t bytes, const std::vector<std::uint64_t>& too_much);

 private:
  void count_excess(const Recipe& recipe, std::uint64_t bytes, const std::vector<std::uint64_t>& too_much);
  bool helps(const Gap& gap) const;
  void evict(std::uint32_t gap, Fate fate);
  void offload(double link_seconds);
  void recompute(double price);
  void keep_what_fits();

  const Problem& problem_;
  std::uint64_t host_bytes_;
  double forward_seconds_ = 0;
  std::vector<std::uint32_t> by_price_;
  std::vector<std::uint64_t> unavoidable_;  // a slot: resident with every gap's value gone
  std::vector<bool> checkpoint_;            // a gap: is not recomputed
  Fates fates_;
  std::vector<std::uint32_t> evicted_;
  std::uint64_t offloaded_bytes_ = 0;
  double link_seconds_ = 0;
  std::vector<std::int64_t> demand_;
  SegmentTree excess_;
};

}  // namespace vdnn::optimal
