#pragma once
// The version that each byte carries, and its writer. Writes are recorded in the order in which work is
// executed; streams and frontiers play no part.

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/interval_map.h"
#include "streams/sim/names.h"
#include "vdnn/device.h"

namespace vdnn {

// Not synchronised.
class VersionMap {
 public:
  struct Stamp {
    std::uint64_t version = 0;            // 0: scratch
    const std::string* writer = nullptr;  // lives as long as the map
  };

  void write(const Access& access, std::string_view writer) {
    stamps_.assign(access.range, {.version = access.version, .writer = names_.intern(writer)});
  }
  void forget(AddressRange range) { stamps_.erase(range); }

  // Calls visitor(piece, stamp) for each piece that does not carry the version that a read expects; the
  // stamp is null where nothing has been written. A read of version 0 expects no version.
  template <class Visitor>
  void visit_stale(const Access& read, Visitor&& visitor) const {
    if (read.version == 0) {
      return;
    }
    stamps_.visit(read.range, [&](AddressRange piece, const Stamp* stamp) {
      if (stamp == nullptr || stamp->version != read.version) {
        visitor(piece, stamp);
      }
    });
  }

 private:
  Names names_;
  IntervalMap<Stamp> stamps_;
};

}  // namespace vdnn
