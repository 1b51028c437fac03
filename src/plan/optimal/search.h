#pragma once
// The best decisions that are found for a problem in the memory that there is.
//
// The search tries all recipes (selection.h), those that lack memory for recomputations with what frees it
// (Layout::relieve), then improves the best of them by local moves: the fates of all gaps between two cuts at
// once, a few neighbouring values decided anew, the fate of one gap, the algorithm of one op, and pairs of
// moves, of which one gives the memory that the other takes. Only moves that can help are tried: memory is
// freed at *tight* slots alone (layout.h), and an op gives up its algorithm where a copy lacks memory.

#include <cstdint>
#include <limits>
#include <random>
#include <unordered_set>
#include <vector>

#include "src/plan/optimal/layout.h"
#include "src/plan/optimal/problem.h"
#include "src/plan/optimal/selection.h"

namespace vdnn::optimal {

// The sizes of memory that are searched, for what is not persistent, ascending, in bytes.
std::vector<std::uint64_t> sizes(const Problem& problem);

struct Found {
  std::uint64_t bytes = 0;  // for what is not persistent
  Decisions decisions;
  double seconds = 0;  // by the model

  bool any() const { return seconds < std::numeric_limits<double>::infinity(); }
};

// kTight: in little memory a small change may matter most.
enum class Effort : std::uint8_t { kUsual, kTight };

class Search {
 public:
  Search(const Problem& problem, std::uint64_t host_bytes);

  // The best of all recipes. The answer does not depend on earlier questions. If nothing is found, its
  // seconds are infinite.
  Found try_recipes(std::uint64_t bytes);
  // Improves what try_recipes() has found last, if anything.
  void improve(Found& best, Effort effort);

 private:
  void begin_anew(std::uint64_t bytes);
  void try_recipe(const Recipe& recipe, Found& best);
  Outcome evaluate(const Decisions& decisions, const Found& best);
  Outcome relieve(const Outcome& outcome, Decisions& decisions, const Found& best);
  bool try_decisions(const Decisions& decisions, Found& best);
  bool take_if_better(const Decisions& decisions, const Outcome& outcome, Found& best);
  void note_tight();
  bool is_tight(const Gap& gap) const;
  void offload_inputs(Found& best);
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
  std::vector<Recipe> recipes_;
  std::unordered_set<std::size_t> seen_;  // hashes of what recipes have chosen
  std::vector<std::uint64_t> too_much_;
  // Of the best: as the layout says of it, and how many tight slots come before each slot.
  std::vector<std::uint32_t> tight_before_;
  std::vector<OpId> held_up_;
  std::vector<std::uint8_t> choice_;
  std::vector<std::uint32_t>
      segments_;  // of gaps, between cuts: each begins here and ends before the next cut
  // Improvements that may be tried.
  std::size_t segment_tries_ = 0;
  std::size_t ruins_ = 0;
  std::size_t tries_ = 0;
  std::size_t next_segment_ = 0;
  std::uint32_t next_gap_ = 0;
  std::minstd_rand random_{1};
};

}  // namespace vdnn::optimal
