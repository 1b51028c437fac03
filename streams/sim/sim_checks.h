#pragma once
// The checks of the `sim` driver: they turn submissions and executions into findings. Races are checked at
// submission; versions and the state of memory are checked at execution.

#include <optional>
#include <span>
#include <string_view>

#include "streams/sim/findings.h"
#include "streams/sim/race_checker.h"
#include "streams/sim/sim_memory.h"
#include "streams/sim/version_map.h"

namespace vdnn {

// One submission to check: work, or a copy with one read and one write.
struct SimStep {
  Point point;
  std::string_view name;
  std::span<const Access> reads;
  std::span<const Access> writes;
  std::optional<CopyDirection> copy;
  double seconds = 0;
  double seconds_both_ways = 0;  // of a copy while the other direction is busy, too
};

// Not synchronised. `memory` must outlive this object.
class SimChecks {
 public:
  SimChecks(bool races, bool versions, const SimMemory& memory);

  bool any() const { return races_ || versions_; }
  void add_stream();
  void submitted(const SimStep& step, const Frontier& frontier);
  void executed(const SimStep& step);
  void synchronize(const Frontier& frontier);
  // Call it before the host releases `range`; `operation` is the name of the releasing call.
  void release(AddressRange range, const std::string& operation);

  const std::vector<SimFinding>& findings() const { return findings_.all(); }

 private:
  void check_memory(const SimStep& step, const Access& access, bool writes);
  void check_version(const SimStep& step, const Access& read);
  RaceChecker::Report reporter(const std::string& later);

  const SimMemory& memory_;
  Findings findings_;
  std::optional<RaceChecker> races_;
  std::optional<VersionMap> versions_;
};

}  // namespace vdnn
