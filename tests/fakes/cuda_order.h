#pragma once
// The order that CUDA itself guarantees, and the accesses that it leaves unordered. This knows nothing of the
// frontiers that the runtime keeps. Work comes after earlier work of its stream, after the events that the
// stream was made to wait for (as they were recorded at that time), and after everything that the host had
// waited for when it submitted the work. The host's own accesses (unmapping, unlocking, reading a result)
// come after all that it has waited for, and before everything that it submits later.
//
// Where several ranges of addresses map the same bytes, accesses conflict by bytes. Unmapping a range
// concerns only work that was given that range.

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
  // A stream of a device, or the branch of a graph that a captured stream has become.
  StreamId add_stream();

  // Work that a stream is given now.
  void submitted(StreamId stream, std::string_view name, std::span<const Access> reads,
                 std::span<const Access> writes);
  // The order that an event stands for if it is recorded on the stream now.
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
  // `name` is given a range that is not mapped, or not on its GPU.
  void missing(AddressRange range, std::string_view name, const std::string& what);

  const std::vector<SimFinding>& findings() const { return findings_.all(); }

 private:
  // Bytes that have several places, and where one piece of work was given them.
  struct Given {
    AddressRange bytes;
    std::uint64_t address = 0;
  };
  // The accesses that the race checker is told of: by address, and by bytes where several addresses share
  // them.
  std::vector<Access> resolve(std::span<const Access> accesses, std::vector<Given>& given) const;
  RaceChecker::Report reporter(const std::string& later, std::span<const Given> given = {});

  std::vector<Frontier> known_;  // of each stream: what its next work comes after
  RaceChecker races_;
  IntervalMap<std::uint64_t> shared_;  // what to add to an address for the name of its byte
  Findings findings_;
};

}  // namespace vdnn
