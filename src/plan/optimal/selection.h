#pragma once
// Which values leave, so that a step fits in so many bytes. The question is one of covering: at each slot so
// many bytes are too much, and the gaps that lie over the slot can give theirs. Offloading costs nothing
// while the link keeps up, and the link's rate beyond; recomputing costs what it takes. A *recipe* says in
// which order that is tried; which one is best depends on network and budget, so that the search tries them
// all.

#include <array>
#include <cstdint>
#include <optional>
#include <random>
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
  // Instead of all that: greedy covering. Values leave and ops step down to slower algorithms in the order of
  // what they cost for each byte that they give to each slot at which memory is short. A second of copying
  // costs so many seconds of computing. 0: no such recipe.
  double link_price = 0;
  Fate again = Fate::kRecompute;  // of what it recomputes
};

std::vector<Recipe> recipes();

// Those of the recipes that cover greedily. At the last whatever can be recomputed is.
inline constexpr std::array kLinkPrices{0.05, 0.2, 0.5, 1.0, 2.0, 1e6};

class Selection {
 public:
  Selection(const Problem& problem, std::uint64_t host_bytes);

  // The same questions get the same answers after the same seed.
  void seed(std::minstd_rand::result_type seed) { random_.seed(seed); }

  // `too_much`: bytes to be gained at a slot beyond what the sizes say, as an earlier attempt has shown.
  Decisions select(const Recipe& recipe, std::uint64_t bytes, const std::vector<std::uint64_t>& too_much);

  // Gaps from the first up to, but not with, the second.
  struct Stretch {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    bool first_stays = false;       // the value of its first gap is kept
    Fate again = Fate::kRecompute;  // of what is recomputed
  };
  // `from`, where the fates in the stretch, and the algorithms of the ops beside them, are decided anew by
  // greedy covering, and elsewhere what must give more memory. Costs vary by chance, so that the same
  // question has many answers.
  Decisions recreate(const Decisions& from, Stretch stretch, double link_price, std::uint64_t bytes);

 private:
  // Something that gives memory: the value of a gap, or the workspace of an op.
  struct Source {
    double seconds = 0;
    double seconds_per_byte = 0;  // and slot at which memory is short
    OpId begin = 0;               // slots that get the memory
    OpId end = 0;
    std::uint64_t bytes = 0;
    bool algorithm = false;
    std::uint32_t index = 0;  // a gap, or an op
    std::uint8_t before = 0;  // of an op: its least choice until now
    Fate fate = Fate::kKeep;  // of a gap
  };

  void select_by_recipe(const Recipe& recipe, std::uint64_t bytes,
                        const std::vector<std::uint64_t>& too_much);
  void count_demand(std::uint64_t bytes, const std::vector<std::uint64_t>& too_much);
  void cover(double link_price, double noise, std::uint64_t bytes,
             const std::vector<std::uint64_t>& too_much);
  std::vector<Source> sources(double link_price, double noise);
  Source source_of(std::uint32_t gap, double link_price) const;
  std::optional<Source> source_of_op(OpId op) const;
  bool take(const Source& source);
  void give_back(std::vector<Source>& taken);
  void count_excess(const Recipe& recipe, std::uint64_t bytes, const std::vector<std::uint64_t>& too_much);
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
  std::vector<std::uint64_t> without_main_;  // a slot: resident with every main gap's value gone
  std::vector<bool> checkpoint_;             // a gap: is not recomputed
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
