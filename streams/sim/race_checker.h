#pragma once
// Finds pairs of accesses to overlapping bytes that nothing orders, at least one of them a write. Vector
// clocks decide which access happens before which (Mattern 1989). For each interval, the checker keeps the
// last write and the reads since, as FastTrack does for variables (Flanagan and Freund, PLDI 2009). One order
// of submission suffices: the checker finds every pair in it, even if the work happened to run without a
// conflict.
//
// An access is ordered after three sets of points: its stream's frontier, all points that those were ordered
// after (a frontier made from a bare point lacks them), and all points that the host had synchronised with at
// the submission. The closure of each point is kept until the host has passed it.
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

  // Checks the next submission, in the order of submission. Its stream is already ordered after `frontier`.
  void submit(Point point, const Frontier& frontier, std::string_view name, std::span<const Access> reads,
              std::span<const Access> writes, const Report& report);
  // The host has waited for `frontier`.
  void synchronize(const Frontier& frontier);
  // The host releases `range`, which counts as a write by the host. The history of `range` is forgotten.
  void release(AddressRange range, const Report& report);
  // Copies the history of accesses to `range` to as many bytes from `other` on.
  void copy(AddressRange range, std::uint64_t other);

 private:
  struct Use {
    Point point;
    const std::string* name = nullptr;  // null: none
  };
  struct History {
    Use last_write;
    std::vector<Use> reads;  // since then; per stream only the last, which follows its others
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
