#pragma once
// The pool's records of a stream of the program, and of an event on a stream.
// allocator/stream_order.h describes the states of a stream.

#include <atomic>
#include <cstdint>
#include <mutex>

#include "allocator/intrusive_list.h"
#include "allocator/pool_tally.h"
#include "allocator/stream_cache.h"
#include "allocator/stream_clock.h"
#include "vdnn/frontier.h"
#include "vdnn/pool_backend.h"

namespace vdnn {

struct PoolStream;

struct StreamEvent {
  PoolStream* stream = nullptr;
  std::uint64_t epoch = 0;   // the epoch that the event has ended
  std::uint64_t number = 0;  // counts all events, in the order in which they were recorded
  EventHandle handle = nullptr;
  bool is_held = false;  // the handle is valid; if not, the event has been reached
  StreamClock after;     // the points that it represents
  ListLinks<StreamEvent> of_stream;
  ListLinks<StreamEvent> of_open;
  ListLinks<StreamEvent> of_held;
};

struct alignas(64) PoolStream {
  // The point that the next user of a block freed now must wait for: the end of the current epoch or, if the
  // stream has ended, of its last one. Empty if the stream has no number: all its work is done then. Call it
  // under `mutex`.
  Point next_point() const {
    return number == 0 ? Point{} : Point{.stream = number, .count = epoch + (ended ? 0 : 1)};
  }

  // The stream's identity: read at any time, changed under `mutex`.
  std::atomic<StreamHandle> handle{nullptr};
  std::atomic<std::uint64_t> id{0};
  std::atomic<bool> known_by_handle{false};

  // Guards the members up to next_cached. The first four are changed under the pool's lock, too, so either
  // lock suffices to read them.
  std::mutex mutex;
  StreamId number = 0;
  std::uint64_t epoch = 0;  // the number of epochs that have ended
  bool ended = false;       // an event represents all work of the stream, or that work is done
  bool keeps_cache = false;
  bool freed_in_epoch = false;
  bool used = false;  // since park_if_quiet() last visited the stream
  bool is_in_freed = false;
  bool is_in_cached = false;
  StreamCache cache;
  StreamTally tally;
  std::uint64_t reused_from_cache = 0;
  PoolStream* next_freed = nullptr;
  PoolStream* next_cached = nullptr;

  // Guarded by the pool's lock.
  bool of_thread = false;
  bool vanished = false;  // gone without notice, and its work is not known to be done
  bool is_parked = false;
  bool is_spare = false;
  std::uint64_t readings = 0;       // blocks in use that name it as a further reader
  std::uint64_t epoch_at_wait = 0;  // `epoch` when the last wait for the device began
  std::uint64_t busy_at_poll = 0;   // the last StreamEvents::poll() that found work not done
  StreamClock known;                // the points that it is ordered after, all of its own included
  IntrusiveList<StreamEvent, &StreamEvent::of_stream> events;  // in order of their epochs
  ListLinks<PoolStream> of_retired;
};

}  // namespace vdnn
