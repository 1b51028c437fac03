#include "streams/sim/random_order.h"

#include <algorithm>
#include <utility>

namespace vdnn {

namespace {

constexpr std::uint64_t kEagernessSteps = 8;

}  // namespace

RandomOrder::RandomOrder(std::uint64_t seed) : random_(seed), eagerness_(random_.below(kEagernessSteps)) {}

void RandomOrder::submit(StreamId stream, std::function<void()> execute) {
  streams_[stream].queue.push_back({.kind = Item::Kind::kWork, .awaited = {}, .execute = std::move(execute)});
  while (random_.below(kEagernessSteps) < eagerness_ && run_one()) {
  }
}

void RandomOrder::follow(StreamId stream, std::function<void()> execute) {
  streams_[stream].queue.push_back(
      {.kind = Item::Kind::kFollow, .awaited = {}, .execute = std::move(execute)});
}

void RandomOrder::wait(StreamId stream, Point awaited, std::function<void()> execute) {
  streams_[stream].queue.push_back(
      {.kind = Item::Kind::kWait, .awaited = awaited, .execute = std::move(execute)});
}

void RandomOrder::settle(Stream& stream) {
  while (!stream.queue.empty()) {
    Item& head = stream.queue.front();
    if (head.kind == Item::Kind::kWork || (head.kind == Item::Kind::kWait && !executed(head.awaited))) {
      return;
    }
    head.execute();
    stream.queue.pop_front();
  }
}

const std::vector<StreamId>& RandomOrder::ready() {
  ready_.clear();
  for (StreamId id = 0; id < streams_.size(); ++id) {
    settle(streams_[id]);
    if (!streams_[id].queue.empty() && streams_[id].queue.front().kind == Item::Kind::kWork) {
      ready_.push_back(id);
    }
  }
  return ready_;
}

bool RandomOrder::run_one() {
  const std::vector<StreamId>& candidates = ready();
  if (candidates.empty()) {
    return false;
  }
  Stream& stream = streams_[candidates[random_.below(candidates.size())]];
  stream.queue.front().execute();
  stream.queue.pop_front();
  ++stream.executed;
  return true;
}

void RandomOrder::run_until(const Frontier& frontier) {
  const auto reached = [this](const Point& point) { return executed(point); };
  while (!std::ranges::all_of(frontier.points(), reached) && run_one()) {
  }
  ready();
}

}  // namespace vdnn
