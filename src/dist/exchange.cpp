#include "src/dist/exchange.h"

#include <set>

#include "src/dist/collective_checks.h"

namespace vdnn {

std::string name_ranks(const std::vector<int>& ranks, const std::vector<std::string>& hosts) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (const int rank : ranks) {
    text += (rank == ranks.front() ? " " : ", ") + std::to_string(rank);
    if (const auto index = static_cast<std::size_t>(rank); index < hosts.size()) {
      text += " (on " + hosts[index] + ")";
    }
  }
  return text;
}

void Exchange::send(int to, Tag tag, const Staged& staged) {
  in_flight_.push_back({.rank = to, .message = transport_.send(to, tag, staged)});
}

void Exchange::receive(int from, Tag tag, const Staged& staged) {
  in_flight_.push_back({.rank = from, .message = transport_.receive(from, tag, staged)});
}

void Exchange::complete(double seconds, const std::string& what, const std::vector<std::string>& hosts,
                        const std::function<void()>& check) {
  Backoff backoff(transport_);
  double deadline = transport_.now_seconds() + seconds;
  while (!in_flight_.empty()) {
    if (advance()) {
      backoff.restart();
      deadline = transport_.now_seconds() + seconds;
      continue;
    }
    check();
    if (transport_.now_seconds() >= deadline) {
      throw DeviceError(what + ": heard nothing from " + name_ranks(awaited(), hosts) + " for " +
                        format_seconds(seconds));
    }
    backoff.rest();
  }
}

bool Exchange::advance() {
  return std::erase_if(in_flight_, [](const InFlight& each) { return each.message->done(); }) > 0;
}

std::vector<int> Exchange::awaited() const {
  std::set<int> ranks;
  for (const InFlight& each : in_flight_) {
    ranks.insert(each.rank);
  }
  return {ranks.begin(), ranks.end()};
}

}  // namespace vdnn
