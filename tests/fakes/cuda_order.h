#pragma once
// What CUDA itself promises of order, and accesses that it leaves unordered. Knows nothing of the frontiers
// that the runtime keeps: work comes after what its stream was given before, after the events that the stream
// was made to wait for (as they were recorded then), and after what the host had waited for when it submitted
// the work. The host's own accesses (unmapping, unlocking, reading a result) come after what it has waited
// for, and before what it submits from then on.
//
// Where several ranges of addresses are the same bytes, work conflicts by bytes; taking a range away concerns
// only work that was given that range.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/interval_map.h"
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
  // `range` is one of several places of the bytes from `offset` of all memory on, until unshare().
  void share(AddressRange range, std::uint64_t offset);
  void unshare(AddressRange range) { shared_.erase(range); }
  // No two places are `bytes` from `offset` on any more.
  void end_sharing(std::uint64_t offset, std::uint64_t bytes);
  // `name` is given what is not there, or not its GPU's.
  void missing(AddressRange range, std::string_view name, const std::string& what);

  const std::vector<SimFinding>& findings() const { return findings_.all(); }

 private:
  // Bytes that have several places, and where one piece of work was given them.
  struct Given {
    AddressRange bytes;
    std::uint64_t address = 0;
  };
  // What the race checker is told of `accesses`: those of ranges, and for what is shared those of its bytes.
  std::vector<Access> resolve(std::span<const Access> accesses, std::vector<Given>& given) const;
  RaceChecker::Report reporter(const std::string& later, std::span<const Given> given = {});

  std::vector<Frontier> known_;  // of each stream: what its next work comes after
  RaceChecker races_;
  IntervalMap<std::uint64_t> shared_;  // what to add to an address for the name of its byte
  Findings findings_;
};

}  // namespace vdnn
