#pragma once
// A device: memory, streams and copies. All code that uses devices (allocator, executor) is written against
// this class. A driver (cpu, cuda, sim) implements the protected functions.
//
// The device orders work, not the host. `submit` and `copy` append to a stream and return at once; `wait`
// makes a stream, not the host, wait for a frontier. Only `synchronize` blocks the host. The class keeps each
// stream's frontier: the points that its next work is ordered after. So a wait for a point that the stream's
// frontier dominates costs nothing and never reaches the driver. If one point of a wait implies another, only
// the implying point reaches the driver.
//
// There are two kinds of memory. Device memory is address space that is reserved once and committed in
// granules; committed bytes count against the budget of the device. Page-locked host memory is allocated in
// exact sizes.
//
// Failures of submitted work surface late: the next `synchronize` of a frontier that contains the work throws
// the work's exception. From then on, until `recover`, the stream refuses new work with the same exception.
// The points of the stream are still reached, so nothing hangs. Work that a call refuses, for lack of memory
// or another reason, is no submission: its point is never counted, and nothing can wait for it.
//
// Thread-safety: the memory functions, `synchronize`, `reached`, `frontier` and the counters may be called
// from any thread; one thread at a time may submit to a stream. A Device has no global state: two Devices on
// two threads are independent.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vdnn/address_range.h"
#include "vdnn/cost.h"
#include "vdnn/frontier.h"

namespace vdnn {

struct DeviceProperties {
  std::string name;                     // as `--device` spells it: "cpu", "sim:titan-x"
  std::uint64_t memory_bytes = 0;       // of the device
  std::uint64_t budget_bytes = 0;       // limit of committed bytes; commit() throws OutOfMemory beyond
  std::uint64_t host_budget_bytes = 0;  // limit of page-locked memory
  std::uint64_t granule_bytes = 0;      // unit of commit; a power of two
  std::uint64_t alignment_bytes = 0;    // of blocks for kernels; a power of two
  std::uint64_t library_bytes = 0;      // used by context and libraries, measured; not part of budget_bytes
  std::uint64_t reserve_bytes = 0;  // free memory kept for context and libraries; not part of budget_bytes
  bool touches_memory = true;       // false: addresses are offsets, work and copies move nothing
};

// An access of a piece of work to one range. `version` identifies the contents: sim verifies that a read
// finds the version that it expects. A read with version 0 is not checked. A write with version 0 leaves
// scratch contents, which no read with a version may find.
struct Access {
  AddressRange range;
  std::uint64_t version = 0;
};

// One piece of work. The spans need to live only for the call; `name` until the work has completed.
struct Work {
  std::string_view name;
  std::span<const Access> reads;
  std::span<const Access> writes;
  Cost cost;
  // Called with the driver's native stream (cpu: nullptr, on the stream's own thread; cuda: the cudaStream_t,
  // on the submitting thread). May throw. Never called by `sim`.
  std::function<void(void* native_stream)> run;
};

enum class CopyDirection : std::uint8_t { kDeviceToHost, kHostToDevice };

// A copy between device and page-locked host memory. Both ranges have the same number of bytes.
struct Copy {
  std::string_view name;
  CopyDirection direction = CopyDirection::kDeviceToHost;
  Access destination;
  Access source;
};

enum class Protection : std::uint8_t { kAccessible, kInaccessible };

// Counted since the device was made; bytes of device memory are whole granules, bytes of host memory as
// requested.
struct DeviceCounters {
  std::uint64_t commits = 0;
  std::uint64_t decommits = 0;
  std::uint64_t committed_bytes = 0;
  std::uint64_t peak_committed_bytes = 0;
  std::uint64_t pinned_allocations = 0;
  std::uint64_t pinned_frees = 0;
  std::uint64_t pinned_bytes = 0;
  std::uint64_t peak_pinned_bytes = 0;
};

// How a stream spent its time so far: working, and blocked in `wait` on other streams. Seconds of
// now_seconds().
struct StreamTimes {
  double busy_seconds = 0;
  double waiting_seconds = 0;
};

// One bar (`begin` to `end`) on a stream's track, or one sample of a named counter (`end` == `begin`).
struct TraceEvent {
  enum class Kind : std::uint8_t { kWork, kWait, kCounter };
  Kind kind = Kind::kWork;
  StreamId stream = 0;
  std::string name;
  double begin_seconds = 0;
  double end_seconds = 0;
  std::uint64_t value = 0;  // of a counter; the bytes of a copy
};

// A sequence of submissions to several streams, kept by the device to be submitted again as one; see
// Device::capture. Must not outlive its device; may be destroyed while it is in flight.
class DeviceGraph {
 public:
  DeviceGraph() = default;
  virtual ~DeviceGraph() = default;
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;

 private:
  friend class Device;
  friend class GraphRecording;
  std::vector<StreamId> streams_;
  std::vector<std::uint64_t> signatures_;  // of its submissions and waits, in order
};

// Defined by the implementation (streams/).
template <class T>
class AppendOnlyList;
class GraphRecording;
struct Timeline;

class Device {
 public:
  virtual ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceProperties& properties() const { return properties_; }
  DeviceCounters counters() const;

  // --- device memory ---------------------------------------------------------------------------------------
  // Reserves address space for `bytes` (rounded up to granules) and commits nothing. Throws OutOfMemory.
  AddressRange reserve(std::uint64_t bytes);
  // Gives a whole reservation back; all of it must have been decommitted, and all work on it completed.
  void unreserve(AddressRange reservation);
  // Backs `range` (granule-aligned, inside a reservation, not committed) with memory of undefined content.
  // Throws OutOfMemory when the budget does not allow it, and then changes nothing.
  void commit(AddressRange range);
  // The reverse of commit(); work that uses the range must have completed.
  void decommit(AddressRange range);

  // --- page-locked host memory -----------------------------------------------------------------------------
  // Allocates exactly `bytes` (> 0), aligned to 4096. Throws OutOfMemory beyond the host budget.
  AddressRange allocate_pinned(std::uint64_t bytes);
  void free_pinned(AddressRange range);

  // --- streams ---------------------------------------------------------------------------------------------
  StreamId create_stream(std::string name);
  const std::string& stream_name(StreamId stream) const;
  std::size_t stream_count() const;

  // Everything that the next work on `stream` is ordered after, its own submissions included.
  Frontier frontier(StreamId stream) const;
  // Orders the next work on `stream` after `frontier`, which must contain submitted points only
  // (InvalidArgument otherwise). The host does not block.
  void wait(StreamId stream, const Frontier& frontier);
  Point submit(StreamId stream, const Work& work);
  Point copy(StreamId stream, const Copy& copy);

  // Blocks the host until `frontier` is reached. Throws the exception of failed work that `frontier`
  // contains.
  void synchronize(const Frontier& frontier);
  void synchronize_all();
  // Waits for everything, then forgets which streams have failed, so that they accept work again. The caller
  // has to repair memory that failed work was writing. Throws if the device is lost.
  void recover();
  // Does not block. For statistics and polling; the executor bases no placement and no order of submissions
  // on it.
  bool reached(const Frontier& frontier);

  // --- time and observation --------------------------------------------------------------------------------
  // A monotonic clock: real on drivers that run, virtual on `sim` (it advances in `synchronize`).
  virtual double now_seconds() const = 0;
  // The times cover work that was timed at its submission and that the host has synchronised with.
  virtual StreamTimes times(StreamId stream) const = 0;
  // Empty if work submitted now is timed; otherwise the reason, for example that timing costs time and
  // nothing is traced (`cuda`).
  virtual std::string why_not_timed() const { return ""; }
  // From now on work, waits and counters are recorded (off at start).
  void set_tracing(bool on) { tracing_.store(on); }
  bool tracing() const { return tracing_.load(); }
  // The events recorded since the last call. Throws std::bad_alloc, and starts afresh, if there was no memory
  // to record all of them: holes in a trace would look like idle time.
  std::vector<TraceEvent> take_trace();
  // While tracing: samples a named counter when `stream` reaches this place. Not a submission.
  void sample_counter(StreamId stream, std::string_view counter, std::uint64_t value);

  // --- optional functions ----------------------------------------------------------------------------------
  // In stream order, forbids or allows every access to `range` of device memory (a debugging aid). Not every
  // driver supports it: `why_not_protect()` is the reason, or empty.
  virtual std::string why_not_protect() const { return "this driver cannot protect memory"; }
  Point protect(StreamId stream, AddressRange range, Protection protection);

  // Captures the submissions of `submit_all` to `streams` as a graph, and launches it. The effect is that of
  // the single submissions, except that `streams` wait for each other before and after; the graph is launched
  // on the first of them. The points of all submissions are reached when the launch is done. None of the work
  // runs until `submit_all` returns. Meanwhile other streams and the host cannot wait for that work, and
  // `streams` cannot wait for work that other streams were given after the capture began (InvalidArgument).
  // The capturing thread may make no call for which the driver might wait: synchronize, reached, recover, and
  // calls that allocate or free memory of the device. Such a call throws InvalidArgument, and the capture
  // continues. During a replay, too, memory must be neither allocated nor freed. If `submit_all` throws,
  // there is no graph: nothing inside will run, its points count as work that has failed with this exception,
  // and the exception is rethrown. One capture or replay at a time.
  virtual std::string why_not_capture() const { return "this driver cannot capture graphs"; }
  // Whether the calling thread is in a capture, in which calls that might wait are refused; see capture().
  bool capturing() const;
  std::unique_ptr<DeviceGraph> capture(std::span<const StreamId> streams,
                                       const std::function<void()>& submit_all);
  // Launches a graph again: the submissions of `submit_all` are counted, and the graph runs in their place;
  // Work::run is not called. `submit_all` must make the captured submissions, at the same addresses. The
  // first submission that differs is refused (InvalidArgument), which ends the replay as an exception ends a
  // capture.
  void replay(const DeviceGraph& graph, const std::function<void()>& submit_all);

 protected:
  explicit Device(DeviceProperties properties);

  // The functions that a driver implements. The arguments have been checked; `point` is the point that the
  // work will complete; `frontier` is the stream's frontier at that submission, without its own point.
  virtual AddressRange do_reserve(std::uint64_t bytes) = 0;
  virtual void do_unreserve(AddressRange reservation) = 0;
  virtual void do_commit(AddressRange range) = 0;
  virtual void do_decommit(AddressRange range) = 0;
  virtual AddressRange do_allocate_pinned(std::uint64_t bytes) = 0;
  virtual void do_free_pinned(AddressRange range) = 0;
  virtual void do_create_stream(StreamId stream, const std::string& name) = 0;
  // Makes `stream` wait for `point`, which is of another stream and not known to be reached.
  virtual void do_wait(StreamId stream, Point point) = 0;
  virtual void do_submit(Point point, const Frontier& frontier, const Work& work) = 0;
  virtual void do_copy(Point point, const Frontier& frontier, const Copy& copy) = 0;
  virtual void do_synchronize(const Frontier& frontier) = 0;
  virtual bool do_reached(const Frontier& frontier) = 0;
  // Called when all submitted work is done. Drivers whose work cannot fail late need not implement it.
  virtual void do_recover() {}
  virtual void do_sample_counter(StreamId stream, std::string_view counter, std::uint64_t value) = 0;
  virtual void do_protect(Point point, const Frontier& frontier, AddressRange range, Protection protection);
  // Called after `streams` have been made to wait for everything that was submitted.
  virtual void do_begin_capture(std::span<const StreamId> streams);
  // `frontier` contains the captured submissions; rethrows the exception of failed work among them.
  virtual std::unique_ptr<DeviceGraph> do_end_capture(std::span<const StreamId> streams,
                                                      const Frontier& frontier);
  // Launches the graph on the first of `streams`; the other streams wait for the launch. The launch is the
  // last point of the first stream. It completes those submissions of all `streams` that `after` dominates
  // and `before` does not.
  virtual void do_launch(const DeviceGraph& graph, std::span<const StreamId> streams, const Frontier& before,
                         const Frontier& after);
  // Called for each stream of a capture or replay that ended before its launch, the first one first.
  // Submissions of `stream` after `before`, up to and including `last`, will not run, because of `cause`.
  virtual void do_abandon(StreamId stream, std::uint64_t before, std::uint64_t last,
                          const std::exception_ptr& cause) noexcept;

  // Never fails, since the recorded event has already happened; see take_trace().
  void record(TraceEvent::Kind kind, StreamId stream, std::string_view name, double begin_seconds,
              double end_seconds, std::uint64_t value = 0) noexcept;

 private:
  Timeline& timeline(StreamId stream) const;
  void check_submitted(const Frontier& frontier) const;
  // Refuses calls that a driver cannot make on a thread that captures: the capture would be lost.
  void check_not_capturing(const char* what) const;
  // Refuses to wait for work of a recording that is not launched yet.
  void check_launched(const Frontier& frontier) const;
  void check_recorded(StreamId stream, const Frontier& missing) const;
  // `missing` without the points that another of its points is ordered after.
  Frontier without_implied(const Frontier& missing) const;
  Frontier everything() const;
  // Adds a submission to `stream`, which `give_to_driver(point, frontier)` passes to the driver. The
  // submission counts only once the driver has accepted it. `sign()` is its signature
  // (streams/graph_recording.h), which only recordings need.
  template <class Sign, class Give>
  Point advance(StreamId stream, std::string_view name, const Sign& sign, const Give& give_to_driver);
  // Gives the driver a submission or a wait unless it belongs to a replay. Throws if the replayed graph has a
  // different one at this place.
  template <class Sign, class Give>
  void give(StreamId stream, std::string_view name, const Sign& sign, const Give& give_to_driver);
  // In a replay, checks that this submission is the next one of the graph (InvalidArgument otherwise) and
  // returns true. In a capture, returns false.
  bool repeat(StreamId stream, std::string_view name, std::uint64_t signature);
  template <class Begin, class Record>
  void record_graph(std::span<const StreamId> streams, const Begin& begin, const Record& record);
  void set_recording(std::unique_ptr<GraphRecording> recording);
  void end_recording() noexcept;
  void launch(const DeviceGraph& graph);
  void abandon(const std::exception_ptr& cause) noexcept;

  DeviceProperties properties_;
  std::mutex creation_mutex_;  // one stream at a time: the driver numbers them as this class does
  mutable std::mutex
      mutex_;  // guards all members below except tracing_; for timelines see streams/timeline.h
  std::unique_ptr<AppendOnlyList<Timeline>> timelines_;
  DeviceCounters counters_;
  std::unique_ptr<GraphRecording> recording_;
  std::vector<TraceEvent> trace_;
  bool trace_has_holes_ = false;
  std::atomic<bool> tracing_{false};
};

}  // namespace vdnn
