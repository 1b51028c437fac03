#pragma once
// For a row of memory sizes, the best that is found for each. Nothing here depends on the device budget.

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "src/plan/optimal/layout.h"
#include "src/plan/optimal/problem.h"
#include "src/plan/optimal/selection.h"

namespace vdnn::optimal {

struct Found {
  std::uint64_t bytes = 0;  // for what is not persistent
  Fates fates;
  double seconds = 0;  // by the model
};

class Search {
 public:
  Search(const Problem& problem, std::uint64_t host_bytes);

  // By size, ascending; a size for which nothing is found is left out.
  std::vector<Found> run();

 private:
  std::vector<std::uint64_t> sizes() const;
  void try_recipe(const Recipe& recipe, Found& best);
  void try_fates(const Fates& fates, Found& best);
  void offload_inputs(Found& best);
  void improve(Found& best);
  void improve_by_segments(Found& best);
  bool improve_one_by_one(Found& best, std::size_t& tries);
  bool improve_in_pairs(Found& best, std::size_t& tries);
  bool change(Found& best, std::uint32_t gap, Fate fate);
  bool may_have(std::uint32_t gap, Fate fate) const;

  const Problem& problem_;
  std::uint64_t host_bytes_;
  Layout layout_;
  Selection selection_;
  std::unordered_set<std::size_t> seen_;  // hashes of what recipes have chosen, of the size at hand
  std::vector<std::uint64_t> too_much_;
  std::vector<std::uint32_t>
      segments_;  // of gaps, between cuts: each begins here and ends before the next cut
  std::size_t size_count_ = 0;
  // Improvements that may be tried, a size.
  std::size_t segment_tries_ = 0;
  std::size_t tries_ = 0;
  std::size_t next_segment_ = 0;
};

}  // namespace vdnn::optimal
