#pragma once
// Selects the values that leave, so that a step fits in a given number of bytes. This is a covering problem:
// each slot exceeds the memory by a number of bytes, and each gap over the slot can free its value's bytes.
// Offloading is free while the link keeps up, and costs the link's time beyond that. Recomputing costs
// compute time. A *rule* is an order in which to try these. The best rule depends on the network and the
// budget, so the search tries all rules.

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "src/plan/optimal/problem.h"
#include "src/plan/optimal/segment_tree.h"

namespace vdnn::optimal {

struct SelectionRule {
  // First, recompute values if that takes at most this many times as long as moving them both ways.
  double recompute_price = 0;
  // Then offload in the order in which values are made, until the copies take this many times as long as the
  // forward pass; then recompute the cheapest; then offload the rest.
  double link_share = 0;
  // Keep or offload a checkpoint whenever the values to be recomputed since the last checkpoint reach this
  // fraction of the memory. 0: no checkpoints.
  double checkpoint_share = 0;
  // Checkpoints are only values at which the forward pass can be cut in two.
  bool checkpoint_at_cuts = false;
  // Make room for the fastest algorithms.
  bool fast_algorithms = true;
  // If not 0, the rule is greedy covering instead of all that. Values leave and ops step down to slower
  // algorithms in the order of their cost per byte freed and per slot that is short of memory. A second of
  // copying counts as this many seconds of computing.
  double link_price = 0;
  Fate again = Fate::kRecompute;  // of the values that it recomputes
};

std::vector<SelectionRule> selection_rules();

// The link prices of the rules that cover greedily. At the last one, every value that can be recomputed is.
inline constexpr std::array kLinkPrices{0.05, 0.2, 0.5, 1.0, 2.0, 1e6};

class Selection {
 public:
  Selection(const Problem& problem, std::uint64_t host_bytes);

  // After the same seed, the same calls return the same decisions.
  void seed(std::minstd_rand::result_type seed) { random_.seed(seed); }

  // `too_much`: by slot, the bytes to free in addition, because an earlier attempt lacked them there.
  Decisions select(const SelectionRule& rule, std::uint64_t bytes,
                   const std::vector<std::uint64_t>& too_much);

  // The gaps from `begin` up to, but not including, `end`.
  struct Stretch {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    bool first_stays = false;       // the value of its first gap is kept
    Fate again = Fate::kRecompute;  // of the values that are recomputed
  };
  // Returns `from` with the fates in the stretch, and the algorithms of the ops in its gaps, decided anew by
  // greedy covering. Elsewhere, decisions change only to free more memory. Costs vary randomly, so that
  // repeated calls return different decisions.
  Decisions recreate(const Decisions& from, Stretch stretch, double link_price, std::uint64_t bytes);

 private:
  // A source of memory: the value of a gap, or the workspace of an op.
  struct Source {
    double seconds = 0;
    double seconds_per_byte = 0;  // and per slot that is short of memory
    OpId begin = 0;               // the first of the slots that get the memory
    OpId end = 0;
    std::uint64_t bytes = 0;
    bool algorithm = false;
    std::uint32_t index = 0;  // a gap, or an op
    std::uint8_t before = 0;  // for an op: its current least choice
    Fate fate = Fate::kKeep;  // for a gap: its new fate
  };

  void select_by_rule(const SelectionRule& rule, std::uint64_t bytes,
                      const std::vector<std::uint64_t>& too_much);
  void count_demand(std::uint64_t bytes, const std::vector<std::uint64_t>& too_much);
  void cover(double link_price, double noise, std::uint64_t bytes,
             const std::vector<std::uint64_t>& too_much);
  std::vector<Source> sources(double link_price, double noise);
  Source source_of(std::uint32_t gap, double link_price) const;
  std::optional<Source> source_of_op(OpId op) const;
  bool take(const Source& source);
  void give_back(std::vector<Source>& taken);
  void count_excess(const SelectionRule& rule, std::uint64_t bytes,
                    const std::vector<std::uint64_t>& too_much);
  bool helps(const Gap& gap) const;
  void evict(std::uint32_t gap, Fate fate);
  void offload(double link_seconds);
  void recompute(double price);
  void evict_minor(bool may_recompute);
  bool on_host(const Gap& gap) const;
  std::vector<std::uint64_t> resident_without_main() const;
  void keep_what_fits();

  const Problem& problem_;
  std::uint64_t host_bytes_;
  double forward_seconds_ = 0;
  std::vector<std::uint32_t> by_price_;      // main gaps
  std::vector<std::uint32_t> minor_;         // the other gaps, those that cost least per byte first
  std::vector<std::uint64_t> without_main_;  // by slot: bytes resident with the values of all main gaps gone
  std::vector<bool> checkpoint_;             // by gap: whether its value must not be recomputed
  Fates fates_;
  std::vector<std::uint8_t> least_choice_;
  std::vector<std::uint32_t> evicted_;
  std::uint64_t offloaded_bytes_ = 0;
  double link_seconds_ = 0;
  std::vector<std::int64_t> demand_;
  SegmentTree excess_;
  std::uint32_t stays_ = kNone;  // a gap that is no source
  Fate again_ = Fate::kRecompute;
  std::minstd_rand random_{1};
};

}  // namespace vdnn::optimal
