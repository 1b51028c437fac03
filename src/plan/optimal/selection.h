#pragma once
// Selects the values that leave, so that a step fits in a given number of bytes. This is a covering problem:
// each slot exceeds the memory by a number of bytes, and each gap that contains the slot can free its value's
// bytes. Offloading costs nothing while the link is fast enough; beyond that, it costs the time of copies.
// Recomputing costs compute time. A *rule* is an order in which to use these two. The best rule depends on
// the network and the budget, so the search tries all rules.

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "src/plan/optimal/problem.h"
#include "src/plan/optimal/segment_tree.h"

namespace vdnn::optimal {

struct SelectionRule {
  // First, recompute the values whose recomputation takes at most this many times as long as an offload and a
  // prefetch.
  double recompute_price = 0;
  // Then offload values in the order in which they are made, until the copies take this many times as long as
  // the forward pass. Then recompute the values that are cheapest to recompute, and offload the rest.
  double link_share = 0;
  // A value becomes a checkpoint, which is not recomputed, whenever the recomputed values since the last
  // checkpoint reach this fraction of the memory. 0: no checkpoints.
  double checkpoint_share = 0;
  // Only values at which the forward pass can be cut in two become checkpoints (Gap::cut).
  bool checkpoint_at_cuts = false;
  // Free memory for the fastest algorithms, too.
  bool fast_algorithms = true;
  // If not 0, the rule is greedy covering, and the members above have no effect. Values leave, and ops step
  // down to slower algorithms, in the order of their cost divided by the freed bytes and by the number of
  // slots that lack memory where the bytes become free. One second of copies counts as this many seconds of
  // computation.
  double link_price = 0;
  Fate again = Fate::kRecompute;  // the fate of recomputed values
};

std::vector<SelectionRule> selection_rules();

// The link prices of the rules that cover greedily. With the last price, every value that leaves is
// recomputed if it can be.
inline constexpr std::array kLinkPrices{0.05, 0.2, 0.5, 1.0, 2.0, 1e6};

class Selection {
 public:
  Selection(const Problem& problem, std::uint64_t host_bytes);

  // After the same seed, the same calls return the same decisions.
  void seed(std::minstd_rand::result_type seed) { random_.seed(seed); }

  // `too_much`: by slot, the bytes to free in addition, because an earlier attempt lacked them at that slot.
  Decisions select(const SelectionRule& rule, std::uint64_t bytes,
                   const std::vector<std::uint64_t>& too_much);

  // The gaps from `begin` up to, but not including, `end`.
  struct Stretch {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    bool first_stays = false;       // whether the value of the first gap is kept
    Fate again = Fate::kRecompute;  // the fate of recomputed values
  };
  // Changes `from` by greedy covering, and returns the result. The fates in the stretch, and the algorithms
  // of the ops in its gaps, are decided anew. Outside of the stretch, decisions change only to free more
  // memory. Costs vary randomly, so that repeated calls return different decisions.
  Decisions recreate(const Decisions& from, Stretch stretch, double link_price, std::uint64_t bytes);

 private:
  // A source of memory: the value of a gap, or the workspace of an op.
  struct Source {
    double seconds = 0;
    double seconds_per_byte = 0;  // seconds / (freed bytes x slots in the range that lack memory)
    OpId begin = 0;               // the first slot at which the source frees memory
    OpId end = 0;                 // the slot after the last such slot
    std::uint64_t bytes = 0;
    bool algorithm = false;
    std::uint32_t index = 0;  // the gap, or the op
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
  void evict_minor(bool recompute_if_faster);
  bool on_host(const Gap& gap) const;
  std::vector<std::uint64_t> resident_without_main() const;
  void keep_what_fits();

  const Problem& problem_;
  std::uint64_t host_bytes_;
  double forward_seconds_ = 0;
  std::vector<std::uint32_t> by_price_;      // main gaps that may be recomputed, the cheapest first
  std::vector<std::uint32_t> minor_;         // all other gaps, the cheapest per byte first
  std::vector<std::uint64_t> without_main_;  // by slot: see resident_without_main()
  std::vector<bool> checkpoint_;             // by gap: whether its value is a checkpoint
  Fates fates_;
  std::vector<std::uint8_t> least_choice_;
  std::vector<std::uint32_t> evicted_;
  std::uint64_t offloaded_bytes_ = 0;
  double link_seconds_ = 0;
  std::vector<std::int64_t> demand_;
  SegmentTree excess_;
  std::uint32_t stays_ = kNone;  // a gap whose value must be kept
  Fate again_ = Fate::kRecompute;
  std::minstd_rand random_{1};
};

}  // namespace vdnn::optimal
