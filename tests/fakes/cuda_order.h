#pragma once
// The order that CUDA itself guarantees, and the accesses that it leaves unordered. This class knows nothing
// of the frontiers that the runtime keeps. Work comes after earlier work of its stream, after the events for
// which the stream was made to wait (as recorded at that time), and after everything for which the host had
// waited when it submitted the work. The host's own accesses (unmapping, unlocking, reading a result) come
// after all that it has waited for. Everything that it submits later comes after them.
//
// If several ranges of addresses map the same bytes, accesses conflict by bytes. Unmapping a range concerns
// only the work that used that range.

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
  // Adds a stream of a device, or the branch of a graph that a captured stream becomes.
  StreamId add_stream();

  // The host submits work to a stream.
  void submitted(StreamId stream, std::string_view name, std::span<const Access> reads,
                 std::span<const Access> writes);
  // The order that an event represents if it is recorded on the stream now.
  const Frontier& recorded(StreamId stream) const { return known_[stream]; }
  void stream_waits(StreamId stream, const Frontier& recorded) { known_[stream].join(recorded); }
  void host_waited(const Frontier& recorded) { races_.synchronize(recorded); }
  // The host reads or writes `range`, or unmaps or unlocks it.
  void host_accesses(AddressRange range, const std::string& name);
  // The life of `range` has ended in the order of a stream, so its accesses are forgotten.
  void gone(AddressRange range);
  // Until unshare(), `range` is one of several places of the bytes that begin at `offset` of all memory.
  void share(AddressRange range, std::uint64_t offset);
  void unshare(AddressRange range) { shared_.erase(range); }
  // The `bytes` from `offset` on have no place any more.
  void end_sharing(std::uint64_t offset, std::uint64_t bytes);
  // Reports that `name` uses a range that is not mapped, or not accessible to its GPU.
  void missing(AddressRange range, std::string_view name, const std::string& what);

  const std::vector<SimFinding>& findings() const { return findings_.all(); }

 private:
  // Bytes with several places, and the address at which one piece of work uses them.
  struct Given {
    AddressRange bytes;
    std::uint64_t address = 0;
  };
  // The accesses for the race checker: by address, and also by bytes if several addresses share them.
  std::vector<Access> resolve(std::span<const Access> accesses, std::vector<Given>& given) const;
  RaceChecker::Report reporter(const std::string& later, std::span<const Given> given = {});

  std::vector<Frontier> known_;  // for each stream: what its next work comes after
  RaceChecker races_;
  IntervalMap<std::uint64_t> shared_;  // to be added to an address for its byte's name
  Findings findings_;
};

}  // namespace vdnn
