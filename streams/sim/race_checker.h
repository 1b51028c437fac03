#pragma once
// Finds pairs of accesses to overlapping bytes, one of them a write, that nothing orders: happens-before by
// vector clocks (Mattern 1989), with the last write and the reads since kept for each interval, as in
// FastTrack (Flanagan and Freund, PLDI 2009), with ranges in place of variables. It needs one order of
// submission only and finds every pair that this order shows, however luckily the work would have run.
//
// An access is ordered after its stream's frontier, after all points that the points of that frontier were
// ordered after (which a frontier made from a bare point does not contain), and after all points that the
// host had synchronised with at the submission. The closure of each point is kept until the host has passed
// it.
//
// Cost of an access: O(log n) for n intervals, and the number of streams.

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/interval_map.h"
#include "streams/sim/names.h"
#include "vdnn/device.h"
#include "vdnn/frontier.h"

namespace vdnn {

// `earlier` and the access being checked touch `range`, unordered.
struct Race {
  AddressRange range;
  const std::string& earlier;
  bool earlier_writes = false;
  bool later_writes = false;
};

// A finding's sentence, without its bytes and full stop (findings.h); `later` is the access being checked.
std::string describe(const Race& race, const std::string& later);

// Not synchronised.
class RaceChecker {
 public:
  using Report = std::function<void(const Race&)>;

  void add_stream() { closures_.emplace_back(); }

  // One submission, in the order of submission; `frontier` is what its stream knows before it.
  void submit(Point point, const Frontier& frontier, std::string_view name, std::span<const Access> reads,
              std::span<const Access> writes, const Report& report);
  // The host has waited for `frontier`.
  void synchronize(const Frontier& frontier);
  // The host takes `range` away: the same as a write by the host. Its history is forgotten.
  void release(AddressRange range, const Report& report);
  // Accesses to `range` count as accesses to as many bytes from `other` on, too.
  void copy(AddressRange range, std::uint64_t other);

 private:
  struct Use {
    Point point;
    const std::string* name = nullptr;  // null: none
  };
  struct History {
    Use last_write;
    std::vector<Use> reads;  // since; at most one a stream, the last, which follows that stream's others
  };
  // The points that each submission of a stream was ordered after, its own included.
  struct Closures {
    std::uint64_t behind = 0;  // as many submissions were dropped
    std::deque<Frontier> ahead;
  };
  Frontier close(const Frontier& frontier) const;
  void check_read(AddressRange range, const Frontier& before, Use use, const Report& report);
  void check_write(AddressRange range, const Frontier& before, Use use, const Report& report);

  std::vector<Closures> closures_;
  Frontier host_;
  Names names_;
  IntervalMap<History> history_;
};

}  // namespace vdnn
