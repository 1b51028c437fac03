#pragma once
// Finds races: pairs of accesses to overlapping bytes that nothing orders, at least one of them a write.
// Vector clocks decide which access happens before which (Mattern 1989). For each interval, the checker
// stores the last write and the reads after it, as FastTrack does for variables (Flanagan and Freund, PLDI
// 2009). One run suffices: the checker finds every race among the run's submissions, even if the work
// happened to run without a conflict.
//
// An access is ordered after three sets of points: the frontier of its stream; all points that the points of
// this frontier were ordered after (the frontier need not contain these); and all points that the host had
// synchronised with when the access was submitted. For each point, the checker stores the points that it was
// ordered after (its closure) until the host has synchronised with the point.
//
// Cost of an access: O(log n) for n intervals, plus a part linear in the number of streams.

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

// A race on `range` between the access `earlier` and the access being checked.
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

  // Checks the next submission. Call it in the order of submission; the submission's stream is already
  // ordered after `frontier`.
  void submit(Point point, const Frontier& frontier, std::string_view name, std::span<const Access> reads,
              std::span<const Access> writes, const Report& report);
  // Notes that the host has waited for `frontier`.
  void synchronize(const Frontier& frontier);
  // Notes that the host releases `range`, which counts as a write by the host. Forgets the history of
  // `range`.
  void release(AddressRange range, const Report& report);
  // Copies the history of accesses to `range` to the range of the same size that begins at `other`.
  void copy(AddressRange range, std::uint64_t other);

 private:
  struct Use {
    Point point;
    const std::string* name = nullptr;  // null: none
  };
  struct History {
    Use last_write;
    std::vector<Use> reads;  // after last_write; of each stream only the last, which follows the others
  };
  // The points that each submission of a stream was ordered after, its own included.
  struct Closures {
    std::uint64_t behind = 0;  // the number of submissions that were dropped
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
