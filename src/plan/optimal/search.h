#pragma once
// For a row of memory sizes, the best decisions that are found for each. What is found for a size does not
// depend on the device budget.
//
// For each size the search tries all recipes (selection.h), those that lack memory for recomputations with
// what frees it (Layout::relieve), and what it found for less memory, then improves the best of them by local
// moves: the fates of all gaps between two cuts at once, a few neighbouring values decided anew, the fate of
// one gap, the algorithm of one op, and pairs of moves, of which one gives the memory that the other takes.
// Only moves that can help are tried: memory is freed at *tight* slots alone (layout.h), and an op gives up
// its algorithm where a copy lacks memory.

#include <cstdint>
#include <optional>
#include <random>
#include <unordered_set>
#include <vector>

#include "src/plan/optimal/layout.h"
#include "src/plan/optimal/problem.h"
#include "src/plan/optimal/selection.h"

namespace vdnn::optimal {

struct Found {
  std::uint64_t bytes = 0;  // for what is not persistent
  Decisions decisions;
  double seconds = 0;  // by the model
};

class Search {
 public:
  Search(const Problem& problem, std::uint64_t host_bytes);

  // Searches all sizes of no more than so many bytes that were not searched before.
  void search_up_to(std::uint64_t bytes);
  // The size that comes next; none: all are searched.
  std::optional<std::uint64_t> next_bytes() const;
  void search_next();

  // Of the sizes searched so far, ascending; the smallest several times, with smaller workspaces first. A
  // size for which nothing is found is left out.
  const std::vector<Found>& found() const { return found_; }

 private:
  std::vector<std::uint64_t> sizes() const;
  Found search(std::uint64_t bytes, const std::optional<Decisions>& start, std::size_t effort);
  void try_recipe(const Recipe& recipe, Found& best);
  Outcome relieve(const Outcome& outcome, Decisions& decisions, std::uint64_t bytes);
  void try_caps(Decisions decisions, Found& best);
  bool try_decisions(const Decisions& decisions, Found& best);
  bool take_if_better(const Decisions& decisions, const Outcome& outcome, Found& best);
  void note_tight();
  bool is_tight(const Gap& gap) const;
  void offload_inputs(Found& best);
  void improve(Found& best, std::size_t effort);
  void improve_by_segments(Found& best);
  void ruin_and_recreate(Found& best, std::size_t times);
  bool step_down(Found& best, std::size_t& tries);
  bool improve_fates(Found& best, std::size_t& tries);
  bool improve_algorithms(Found& best, std::size_t& tries);
  bool improve_in_pairs(Found& best, std::size_t& tries);
  bool may_have(std::uint32_t gap, Fate fate) const;
  bool may_help(const Found& best, std::uint32_t gap, Fate fate) const;

  const Problem& problem_;
  std::uint64_t host_bytes_;
  Layout layout_;
  Selection selection_;
  std::vector<std::vector<std::uint8_t>> caps_;  // see workspace_caps()
  std::vector<Recipe> recipes_;
  std::vector<std::uint64_t> sizes_;
  std::size_t next_size_ = 0;
  std::vector<Found> found_;
  std::unordered_set<std::size_t> seen_;  // hashes of what recipes have chosen, of the size at hand
  std::vector<std::uint64_t> too_much_;
  // Of the best: as the layout says of it, and how many tight slots come before each slot.
  std::vector<std::uint32_t> tight_before_;
  std::vector<OpId> held_up_;
  std::vector<std::uint8_t> choice_;
  std::vector<std::uint32_t>
      segments_;  // of gaps, between cuts: each begins here and ends before the next cut
  std::size_t size_count_ = 0;
  // Improvements that may be tried, a size.
  std::size_t segment_tries_ = 0;
  std::size_t ruins_ = 0;
  std::size_t tries_ = 0;
  std::size_t next_segment_ = 0;
  std::uint32_t next_gap_ = 0;
  std::minstd_rand random_{1};
};

}  // namespace vdnn::optimal
