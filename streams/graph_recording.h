#pragma once
// One capture of a graph or one replay of it, from its begin to its launch or failure.
//
// A replay counts the same submissions and waits as the capture did, and gives the driver none of them. So it
// must be shown that they are the same: a recording identifies each by a signature, a hash of what it does,
// where in memory and on which stream. The graph keeps the signatures of its capture in order, and a replay
// compares each of its own with the one at its place. Versions are no part of a signature: they differ from
// step to step.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <thread>
#include <vector>

#include "vdnn/device.h"

namespace vdnn {

using Signature = std::uint64_t;

Signature signature_of(const Work& work);
Signature signature_of(const Copy& copy);
Signature signature_of(AddressRange range, Protection protection);

// Not synchronised: the device's lock guards it.
class GraphRecording {
 public:
  // A capture; `before` is the frontier of all streams at its begin.
  GraphRecording(std::vector<StreamId> streams, Frontier before);
  // A replay of `graph`, which must outlive the recording.
  GraphRecording(const DeviceGraph& graph, Frontier before);

  // The first one is the stream that the graph is launched on.
  const std::vector<StreamId>& streams() const { return streams_; }
  const Frontier& before() const { return before_; }
  bool has(StreamId stream) const;
  bool has(Point point) const { return has(point.stream) && !before_.dominates(point); }
  bool is_capture() const { return replayed_ == nullptr; }
  // Whether the calling thread captures.
  bool captures_here() const { return is_capture() && thread_ == std::this_thread::get_id(); }

  // Of a wait for `point`, inside this recording: the same in every replay.
  Signature signature_of_wait(Point point) const;

  // How many submissions and waits a replay has repeated, and how many it has to.
  std::size_t position() const { return position_; }
  std::size_t length() const;

  // A capture makes room for one more signature, so that keep() cannot fail.
  void reserve_signature();
  // Adds a submission that the driver has accepted to the captured graph.
  void keep(StreamId stream, Signature signature) noexcept;
  // A replay goes on by one; false, and nothing changes, if the graph has something else at this place.
  bool repeat(StreamId stream, Signature signature);
  // The end of a capture.
  void give_signatures_to(DeviceGraph& graph);

 private:
  std::vector<StreamId> streams_;
  Frontier before_;
  const DeviceGraph* replayed_ = nullptr;
  std::vector<Signature> captured_;
  std::size_t position_ = 0;
  std::thread::id thread_ = std::this_thread::get_id();
};

}  // namespace vdnn
