#pragma once
// What CUDA itself promises of order, and accesses that it leaves unordered. Knows nothing of the frontiers
// that the runtime keeps: work comes after what its stream was given before, after the events that the stream
// was made to wait for (as they were recorded then), and after what the host had waited for when it submitted
// the work. The host's own accesses (unmapping, unlocking, reading a result) come after what it has waited
// for, and before what it submits from then on.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "streams/sim/findings.h"
#include "streams/sim/race_checker.h"

namespace vdnn {

// Not synchronised.
class CudaOrder {
 public:
  // Of a device, or what a graph has in place of one that was captured.
  StreamId add_stream();

  // Work that a stream is given now.
  void submitted(StreamId stream, std::string_view name, std::span<const Access> reads,
                 std::span<const Access> writes);
  // What an event stands for that is recorded on the stream now.
  const Frontier& recorded(StreamId stream) const { return known_[stream]; }
  void stream_waits(StreamId stream, const Frontier& recorded) { known_[stream].join(recorded); }
  void host_waited(const Frontier& recorded) { races_.synchronize(recorded); }
  // The host reads or writes `range`, or takes it away.
  void host_accesses(AddressRange range, const std::string& name);
  // `range` has ended in the order of a stream: who has touched it is forgotten.
  void gone(AddressRange range);
  // `name` is given what is not there, or not its GPU's.
  void missing(AddressRange range, std::string_view name, const std::string& what);

  const std::vector<SimFinding>& findings() const { return findings_.all(); }

 private:
  RaceChecker::Report reporter(const std::string& later);

  std::vector<Frontier> known_;  // of each stream: what its next work comes after
  RaceChecker races_;
  Findings findings_;
};

}  // namespace vdnn
