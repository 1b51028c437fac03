#pragma once
// Finds good decisions for a problem in a given amount of memory.
//
// The search tries all rules (selection.h). If the decisions of a rule lack memory for recomputations,
// StepModel::relieve() frees it. The search then improves the best decisions by local moves. A move decides
// one of these anew: the fates of all gaps between two cuts, the fates of a few neighbouring values, the fate
// of one gap, or the algorithm of one op. Pairs of moves are tried, too: one move frees the memory that the
// other needs. Only moves that can help are tried. Moves free memory only at *tight* slots (step_model.h),
// and give an op a slower algorithm only where a copy lacks memory.

#include <cstdint>
#include <limits>
#include <random>
#include <unordered_set>
#include <vector>

#include "src/plan/optimal/problem.h"
#include "src/plan/optimal/selection.h"
#include "src/plan/optimal/step_model.h"

namespace vdnn::optimal {

// The sizes of memory for which to search, ascending: bytes for all that is not persistent.
std::vector<std::uint64_t> sizes(const Problem& problem);

struct Found {
  std::uint64_t bytes = 0;  // for all that is not persistent
  Decisions decisions;
  double seconds = 0;  // by the model

  bool any() const { return seconds < std::numeric_limits<double>::infinity(); }
};

// How many tries a search makes. kTight: more tries, for little memory, where small changes matter most.
enum class Effort : std::uint8_t { kUsual, kTight };

class Search {
 public:
  Search(const Problem& problem, std::uint64_t host_bytes);

  // Returns the best decisions of all rules. The result does not depend on earlier calls. Its seconds are
  // infinite if no rule finds decisions that fit.
  Found try_rules(std::uint64_t bytes);
  // Improves `best`, the result of the last try_rules(). Requires best.any().
  void improve(Found& best, Effort effort);

 private:
  void begin_anew(std::uint64_t bytes);
  void try_rule(const SelectionRule& rule, Found& best);
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
  StepModel model_;
  Selection selection_;
  std::vector<SelectionRule> rules_;
  std::unordered_set<std::size_t> seen_;  // hashes of the decisions that the rules have made
  std::vector<std::uint64_t> too_much_;   // by slot: see Selection::select()
  // The model's results for the best decisions. tight_before_ has the number of tight slots before each slot.
  std::vector<std::uint32_t> tight_before_;
  std::vector<OpId> held_up_;
  std::vector<std::uint8_t> choice_;
  std::vector<std::uint32_t> segments_;  // where each segment of gaps begins; it ends before the next cut
  // How many improvements of each kind may be tried.
  std::size_t segment_tries_ = 0;
  std::size_t ruins_ = 0;
  std::size_t tries_ = 0;
  std::size_t next_segment_ = 0;
  std::uint32_t next_gap_ = 0;
  std::minstd_rand random_{1};
};

}  // namespace vdnn::optimal
