#pragma once
// The order that CUDA itself guarantees, and the accesses that it leaves unordered. This class knows nothing
// of the frontiers that the runtime keeps. Work comes after earlier work of its stream, and after the events
// for which the stream was made to wait (as recorded at that time). It also comes after everything for which
// the host had waited when it submitted the work. The host's own accesses (unmapping, unlocking, reading a
// result) come after everything for which the host has waited. Everything that the host submits later comes
// after these accesses.
//
// If several ranges of addresses map the same bytes, accesses conflict by bytes. Unmapping a range conflicts
// only with work that used the bytes through that range.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/interval_map.h"
#include "streams/sim/findings.h"
#include "streams/sim/race_checker.h"

namespace vdnn {

// Call the functions from one thread at a time.
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
  // The life of `range` has ended in the order of a stream, so all accesses to it are forgotten.
  void gone(AddressRange range);
  // Until unshare(), `range` is one of several ranges that map the same bytes. `offset` is the position of
  // these bytes in all memory.
  void share(AddressRange range, std::uint64_t offset);
  void unshare(AddressRange range) { shared_.erase(range); }
  // The `bytes` from `offset` on are not mapped anywhere any more.
  void end_sharing(std::uint64_t offset, std::uint64_t bytes);
  // Reports that work `name` uses a range that is not mapped, or that its GPU cannot access.
  void missing(AddressRange range, std::string_view name, const std::string& what);

  const std::vector<SimFinding>& findings() const { return findings_.all(); }

 private:
  // Bytes that are mapped at several addresses, and the address at which one piece of work uses them.
  struct Given {
    AddressRange bytes;
    std::uint64_t address = 0;
  };
  // The accesses for the race checker: by address, and also by bytes if several addresses share them.
  std::vector<Access> resolve(std::span<const Access> accesses, std::vector<Given>& given) const;
  RaceChecker::Report reporter(const std::string& later, std::span<const Given> given = {});

  std::vector<Frontier> known_;  // for each stream: what its next work comes after
  RaceChecker races_;
  IntervalMap<std::uint64_t> shared_;  // added to an address, gives the name of its byte
  Findings findings_;
};

}  // namespace vdnn
