#include "streams/sim/sim_checks.h"

#include <string>

namespace vdnn {

namespace {

std::string quoted(std::string_view name) {
  return "'" + std::string(name) + "'";
}

const char* verb(bool writes) {
  return writes ? "writes" : "reads";
}

// Work may access both spaces, so the address decides. For a copy, the direction determines the space of
// each side.
SimMemory::Space space_of(const SimStep& step, const Access& access, bool writes) {
  if (!step.copy) {
    return SimMemory::space_of(access.range.begin);
  }
  const bool device_side = (*step.copy == CopyDirection::kDeviceToHost) != writes;
  return device_side ? SimMemory::Space::kDevice : SimMemory::Space::kHost;
}

}  // namespace

SimChecks::SimChecks(bool races, bool versions, const SimMemory& memory) : memory_(memory) {
  if (races) {
    races_.emplace();
  }
  if (versions) {
    versions_.emplace();
  }
}

void SimChecks::add_stream() {
  if (races_) {
    races_->add_stream();
  }
}

RaceChecker::Report SimChecks::reporter(const std::string& later) {
  return [this, &later](const Race& race) {
    findings_.add(SimFinding::Kind::kRace, race.earlier, later, race.range, describe(race, later));
  };
}

void SimChecks::submitted(const SimStep& step, const Frontier& frontier) {
  if (races_) {
    const std::string name(step.name);
    races_->submit(step.point, frontier, name, step.reads, step.writes, reporter(name));
  }
}

void SimChecks::executed(const SimStep& step) {
  for (const Access& read : step.reads) {
    check_memory(step, read, false);
    check_version(step, read);
  }
  for (const Access& write : step.writes) {
    check_memory(step, write, true);
    if (versions_) {
      versions_->write(write, step.name);
    }
  }
}

void SimChecks::check_memory(const SimStep& step, const Access& access, bool writes) {
  const SimMemory::Space space = space_of(step, access, writes);
  const std::string name(step.name);
  memory_.visit_missing(space, access.range, [&](AddressRange piece) {
    findings_.add(SimFinding::Kind::kNotCommitted, "", name, piece,
                  quoted(name) + " " + verb(writes) +
                      (space == SimMemory::Space::kDevice ? " device memory that is not committed"
                                                          : " outside any live block of page-locked memory"));
  });
  memory_.visit_inaccessible(access.range, [&](AddressRange piece) {
    findings_.add(SimFinding::Kind::kInaccessible, "protect", name, piece,
                  quoted(name) + " " + verb(writes) + " what 'protect' made inaccessible");
  });
}

void SimChecks::check_version(const SimStep& step, const Access& read) {
  if (!versions_) {
    return;
  }
  versions_->visit_stale(read, [&](AddressRange piece, const VersionMap::Stamp* found) {
    const std::string name(step.name);
    const std::string writer = found == nullptr ? "" : *found->writer;
    std::string what = quoted(name) + " expects version " + std::to_string(read.version) + " and finds ";
    if (found == nullptr) {
      what += "bytes that nobody wrote";
    } else if (found->version == 0) {
      what += "scratch that " + quoted(writer) + " wrote";
    } else {
      what += "version " + std::to_string(found->version) + " that " + quoted(writer) + " wrote";
    }
    findings_.add(SimFinding::Kind::kStaleVersion, writer, name, piece, what);
  });
}

void SimChecks::synchronize(const Frontier& frontier) {
  if (races_) {
    races_->synchronize(frontier);
  }
}

void SimChecks::release(AddressRange range, const std::string& operation) {
  if (races_) {
    races_->release(range, reporter(operation));
  }
  if (versions_) {
    versions_->forget(range);
  }
}

}  // namespace vdnn
