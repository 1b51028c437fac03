#pragma once
// One capture or one replay of a graph. It ends with the graph's launch or with a failure.
//
// A replay counts its submissions and waits like a capture but passes none of them to the driver. So the
// recording must check that they are the same as in the capture. It identifies each by a signature: a hash
// of the operation, its addresses and its stream. The graph stores the signatures of its capture in order,
// and a replay compares its own signatures with them one by one. Versions, which differ from step to step,
// are not part of a signature.

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
  // A capture; `before` is the frontier of all streams at its beginning.
  GraphRecording(std::vector<StreamId> streams, Frontier before);
  // A replay of `graph`, which must outlive the recording.
  GraphRecording(const DeviceGraph& graph, Frontier before);

  // The graph's streams. The graph is launched on the first one.
  const std::vector<StreamId>& streams() const { return streams_; }
  const Frontier& before() const { return before_; }
  bool has(StreamId stream) const;
  bool has(Point point) const { return has(point.stream) && !before_.dominates(point); }
  bool is_capture() const { return replayed_ == nullptr; }
  // Whether this is a capture by the calling thread.
  bool captures_here() const { return is_capture() && thread_ == std::this_thread::get_id(); }

  // The signature of a wait for `point`, which is inside this recording; the same in every replay.
  Signature signature_of_wait(Point point) const;

  // How many submissions and waits a replay has repeated.
  std::size_t position() const { return position_; }
  // How many submissions and waits a replay must repeat.
  std::size_t length() const;

  // Reserves capacity for one more signature of a capture, so that keep() cannot fail.
  void reserve_signature();
  // Adds a submission that the driver has accepted to the captured graph.
  void keep(StreamId stream, Signature signature) noexcept;
  // Advances a replay by one submission or wait. Returns false and changes nothing if the graph has a
  // different signature at this position.
  bool repeat(StreamId stream, Signature signature);
  // Moves the signatures of a capture to its graph. Call it at the end of the capture.
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
