#include "streams/sim/race_checker.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace vdnn {

std::string describe(const Race& race, const std::string& later) {
  const auto verb = [](bool writes) { return writes ? "writes" : "reads"; };
  return "'" + later + "' " + verb(race.later_writes) + " what '" + race.earlier + "' " +
         verb(race.earlier_writes) + ", and nothing orders the two";
}

Frontier RaceChecker::close(const Frontier& frontier) const {
  Frontier closed = frontier;
  for (const Point& point : frontier.points()) {
    const Closures& closures = closures_[point.stream];
    if (point.count > closures.behind) {
      closed.join(closures.ahead[point.count - closures.behind - 1]);
    }
  }
  return closed;
}

void RaceChecker::submit(Point point, const Frontier& frontier, std::string_view name,
                         std::span<const Access> reads, std::span<const Access> writes,
                         const Report& report) {
  Frontier before = close(frontier);
  before.join(host_);
  Frontier after = before;
  after.join(point);
  const Use use{.point = point, .name = names_.intern(name)};
  // `after` also dominates the submission's own point: two accesses of one piece of work do not race.
  for (const Access& read : reads) {
    check_read(read.range, after, use, report);
  }
  for (const Access& write : writes) {
    check_write(write.range, after, use, report);
  }
  closures_[point.stream].ahead.push_back(std::move(after));
}

void RaceChecker::check_read(AddressRange range, const Frontier& before, Use use, const Report& report) {
  history_.update(range, [&](AddressRange piece, History& history) {
    const Use& write = history.last_write;
    if (write.name != nullptr && !before.dominates(write.point)) {
      report({.range = piece, .earlier = *write.name, .earlier_writes = true, .later_writes = false});
    }
    const auto mine =
        std::ranges::find(history.reads, use.point.stream, [](const Use& read) { return read.point.stream; });
    if (mine == history.reads.end()) {
      history.reads.push_back(use);
    } else {
      *mine = use;
    }
  });
}

void RaceChecker::check_write(AddressRange range, const Frontier& before, Use use, const Report& report) {
  history_.visit(range, [&](AddressRange piece, const History* history) {
    if (history == nullptr) {
      return;
    }
    const auto check = [&](const Use& earlier, bool writes) {
      if (earlier.name != nullptr && !before.dominates(earlier.point)) {
        report({.range = piece, .earlier = *earlier.name, .earlier_writes = writes, .later_writes = true});
      }
    };
    check(history->last_write, true);
    for (const Use& read : history->reads) {
      check(read, false);
    }
  });
  history_.assign(range, {.last_write = use, .reads = {}});
}

void RaceChecker::synchronize(const Frontier& frontier) {
  host_.join(close(frontier));
  for (StreamId stream = 0; stream < closures_.size(); ++stream) {
    Closures& closures = closures_[stream];
    while (closures.behind < host_.count(stream)) {
      closures.ahead.pop_front();
      ++closures.behind;
    }
  }
}

void RaceChecker::release(AddressRange range, const Report& report) {
  check_write(range, host_, {}, report);
  history_.erase(range);
}

void RaceChecker::copy(AddressRange range, std::uint64_t other) {
  std::vector<std::pair<AddressRange, History>> found;
  history_.visit(range, [&](AddressRange piece, const History* history) {
    if (history != nullptr) {
      found.emplace_back(AddressRange{.begin = other + (piece.begin - range.begin), .bytes = piece.bytes},
                         *history);
    }
  });
  for (auto& [piece, history] : found) {
    history_.assign(piece, std::move(history));
  }
}

}  // namespace vdnn
