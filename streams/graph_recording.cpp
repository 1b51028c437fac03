#include "streams/graph_recording.h"

#include <algorithm>
#include <span>
#include <utility>

#include "src/base/random.h"

namespace vdnn {

namespace {

Signature combine(Signature before, std::uint64_t next) {
  return mix64((before + 0x9e3779b97f4a7c15) ^ next);
}

Signature combine(Signature before, std::span<const Access> accesses) {
  before = combine(before, accesses.size());
  for (const Access& access : accesses) {
    before = combine(combine(before, access.range.begin), access.range.bytes);
  }
  return before;
}

// The hash of a submission starts with its kind.
enum Kind : std::uint64_t { kWait, kWork, kCopy, kProtection };

}  // namespace

Signature signature_of(const Work& work) {
  return combine(combine(kWork, work.reads), work.writes);
}

Signature signature_of(const Copy& copy) {
  const Signature sides = combine(combine(kCopy, {&copy.destination, 1}), {&copy.source, 1});
  return combine(sides, static_cast<std::uint64_t>(copy.direction));
}

Signature signature_of(AddressRange range, Protection protection) {
  return combine(combine(combine(kProtection, range.begin), range.bytes),
                 static_cast<std::uint64_t>(protection));
}

GraphRecording::GraphRecording(std::vector<StreamId> streams, Frontier before)
    : streams_(std::move(streams)), before_(std::move(before)) {}

GraphRecording::GraphRecording(const DeviceGraph& graph, Frontier before)
    : streams_(graph.streams_), before_(std::move(before)), replayed_(&graph) {}

bool GraphRecording::has(StreamId stream) const {
  return std::ranges::find(streams_, stream) != streams_.end();
}

Signature GraphRecording::signature_of_wait(Point point) const {
  return combine(combine(kWait, point.stream), point.count - before_.count(point.stream));
}

std::size_t GraphRecording::length() const {
  return replayed_ == nullptr ? captured_.size() : replayed_->signatures_.size();
}

void GraphRecording::reserve_signature() {
  if (captured_.size() == captured_.capacity()) {
    captured_.reserve(2 * captured_.size() + 1);
  }
}

void GraphRecording::keep(StreamId stream, Signature signature) noexcept {
  captured_.push_back(combine(signature, stream));
}

bool GraphRecording::repeat(StreamId stream, Signature signature) {
  const std::vector<Signature>& expected = replayed_->signatures_;
  if (position_ >= expected.size() || expected[position_] != combine(signature, stream)) {
    return false;
  }
  ++position_;
  return true;
}

void GraphRecording::give_signatures_to(DeviceGraph& graph) {
  graph.streams_ = streams_;
  graph.signatures_ = std::move(captured_);
}

}  // namespace vdnn
