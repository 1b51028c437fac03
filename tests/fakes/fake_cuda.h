#pragma once
// A CUDA runtime without a GPU, for tests of its callers. Streams are logical queues. Submitted work runs
// when the host waits; a part of it, drawn by seed, runs earlier. One piece runs at a time, in a drawn order
// among those that the streams and their waits permit. Device memory is real: address space becomes
// accessible when it is mapped. So tests can compare bytes, and work that touches unmapped memory crashes. An
// allocation can be mapped at several places, and lasts until it is neither owned nor mapped. Device memory
// can also be logical: it then consists of addresses alone, nothing is mapped, touched or copied, and a GPU
// may have terabytes.
//
// The default streams have their own handles, and each stream behaves as CUDA documents for its kind. The
// legacy stream waits for all earlier work of blocking streams, and later work of blocking streams waits for
// the legacy stream. Streams of stream_create() do not block; the default streams of threads do.
//
// A captured stream records its work instead of running it. A graph has the recorded pieces with only the
// order that streams and events gave them. Each launch runs the pieces in a newly drawn order. Memory
// allocated in the order of a captured stream belongs to the graph. Its address is valid from a launch until
// the following free, inside the graph or after it, and no other memory has this address. Waiting for
// captured work, querying it, or waiting for the whole GPU invalidates the capture, whichever thread does so.
// So does any other call that waits for the device or changes memory, if the modes of capture and thread
// forbid the call. CUDA does not document this for every call.
//
// Calls are counted, and a chosen call can be made to fail. The fake reports misuse (a destroyed handle, an
// unmapped range, a stream of another GPU, a copy of memory that is no longer page-locked) and leaks. It also
// reports unordered accesses to the same bytes if one of them is a write (cuda_order.h). Accesses are those
// of copies, of kernels that declare them, and of the host if it unmaps or unlocks memory or declares an
// access.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "src/base/interval_map.h"
#include "streams/cuda/cuda_api.h"
#include "streams/mapping.h"
#include "tests/fakes/cuda_order.h"
#include "tests/fakes/fake_memory.h"
#include "tests/fakes/thread_number.h"

namespace vdnn {

struct FakeCudaOptions {
  std::uint64_t seed = 0;
  int gpus = 1;
  int first_card = 0;  // the machine's number of cuda:0, as CUDA_VISIBLE_DEVICES can choose
  std::uint64_t memory_bytes = std::uint64_t{2} << 30;  // of each GPU
  std::uint64_t used_bytes = 0;                         // of each GPU, by other processes
  std::uint64_t context_bytes = 0;                      // of each GPU that the process uses
  bool nvml = true;
  std::uint64_t granule_bytes = std::uint64_t{2} << 20;
  int driver_version = 13000;  // 0: no driver
  int compute_capability = 90;
  bool virtual_memory = true;
  bool file_handles = true;  // CudaDeviceInfo
  bool rdma = true;          // CudaDeviceInfo
  bool peers = true;         // whether GPUs can access each other's memory
  std::optional<int> host_node;
  std::uint64_t malloc_offset = 0;  // from a granule's begin to cudaMalloc's addresses
  bool logical_memory = false;
  // The GPUs' time in seconds, for the time stamps of events. The test's own kernels advance it, and so does
  // an idle GPU that waits for more work from the host. If null, time stamps are real time.
  std::shared_ptr<double> clock;
  // With a clock: how long the host needs to submit a piece of work or an event. No piece begins before the
  // host has submitted it, and a waiting host continues no sooner than the GPU has finished.
  double submission_seconds = 0;
  // Called while the host waits and no work can run. It lets other processes progress, since a held stream
  // may wait for them. If it returns false or is empty, the host would wait forever, which is reported as
  // misuse.
  std::function<bool()> while_host_waits;
};

// The ranges that a kernel accesses. The spans need not outlive the call.
struct FakeAccesses {
  std::string_view name = "kernel";
  std::span<const Access> reads;
  std::span<const Access> writes;  // includes the workspace
  // A copy instead of a kernel. Without peer access, copies of another GPU's cudaMalloc memory go through the
  // host (cudaMemcpyPeerAsync), but copies of virtual memory do not.
  bool is_copy = false;
};

// Thread-safe.
class FakeCuda final : public CudaApi {
 public:
  explicit FakeCuda(const FakeCudaOptions& options = {}) : options_(options), random_(options.seed) {}

  // --- calls of tests -------------------------------------------------------------------------------------
  // Like cudaLaunchKernel(): `kernel` runs in its turn. If the launch fails, its error is cleared from the
  // thread, but an error of an earlier call stays. `stream` must belong to a FakeCuda. The kernel must make
  // no calls.
  static CudaStatus launch(CudaStream stream, std::function<void()> kernel,
                           const FakeAccesses& accesses = {});
  // Stops the stream until ready() returns true, like a kernel that waits for other GPUs. ready() must make
  // no calls.
  static CudaStatus hold(CudaStream stream, std::function<bool()> ready);
  // Call it inside a kernel that runs on `stream`. The kernel then also reads `range`, as NCCL's kernels read
  // buffers of other ranks.
  static void read_in_kernel(CudaStream stream, AddressRange range, std::string_view name);
  // The host does something else for a while, so the GPUs run all that can run.
  void rest();
  // Whether `address` lies in a reservation of the stream's runtime.
  static bool is_device_address(CudaStream stream, std::uint64_t address);
  // Launches a kernel that corrupts its GPU's context. Once it has run, nothing else runs there, and every
  // call of a thread with that GPU set returns `status`.
  static void launch_that_corrupts(CudaStream stream, CudaStatus status);

  // cudaStreamCreate: the stream takes turns with the legacy default stream.
  CudaStatus stream_create_blocking(CudaStream& stream);
  // The default stream of this handle. 0 and cudaStreamLegacy (1) mean the legacy stream of the calling
  // thread's GPU. cudaStreamPerThread (2) means the thread's own stream on this GPU.
  CudaStream stream_of(CudaStream stream);

  // cudaStreamBeginCapture with a mode, whereas stream_begin_capture(stream) uses kThreadLocal. With `into`,
  // cudaStreamBeginCaptureToGraph, whose first node comes after no other.
  CudaStatus stream_begin_capture(CudaStream stream, CaptureMode mode, CudaGraph into = nullptr);
  // Waits until the calling thread's GPU has finished its work, like cudaFree(). Captures stay as they are.
  CudaStatus finish_work();
  // The first part of cudaDeviceReset(): drops the captures of the calling thread's GPU, so that the caller
  // can destroy the GPU's streams.
  void drop_captures();

  // cudaMallocManaged: like malloc(), but every GPU may access the memory.
  CudaStatus malloc_managed(std::uint64_t& address, std::uint64_t bytes);
  // cudaMallocAsync: memory in the stream's order; if the stream is captured, it belongs to the graph.
  CudaStatus malloc_async(std::uint64_t& address, std::uint64_t bytes, CudaStream stream);
  // cudaFreeAsync: frees in the stream's order. A capture may free only memory of a graph.
  CudaStatus free_async(std::uint64_t address, CudaStream stream);
  // Whether memory of a graph begins at `address`. Such memory has its address forever.
  bool is_graph_memory(std::uint64_t address) const;

  // cuMemRetainAllocationHandle and cuMemExportToShareableHandle, as a file descriptor, for the allocation
  // mapped at `address`; `mapped` is its range. Refused unless the allocation was created for export.
  CudaStatus export_allocation(AddressRange& mapped, std::uint64_t address);
  // Registers memory as drivers of network cards do for GPUDirect RDMA. Refused unless all of it was created
  // for RDMA.
  CudaStatus register_for_rdma(AddressRange range) const;

  // cuCtxCreate() or cuCtxFromGreenCtx(): makes a context of the GPU that is not its primary one. It is not
  // current to any thread.
  CudaContextHandle make_context(int ordinal);

  // Whether a context that is not primary is current to the calling thread. This is not a call of CUDA.
  bool has_own_context();

  // cudaDeviceReset() by a thread that has no context of its own.
  CudaStatus device_reset();

  // The calling thread's GPU. This is not a call of CUDA.
  int gpu_of_thread();

  // Another process allocates `bytes` of the GPU.
  void take_memory(int ordinal, std::uint64_t bytes);
  // Gives back what take_memory() took.
  void return_memory(int ordinal, std::uint64_t bytes);
  // Whether the process has a context on the GPU.
  bool uses(int ordinal) const;
  // The peak of the memory in use on the GPU, mapped or not, with contexts and take_memory() but without
  // used_bytes.
  std::uint64_t peak_bytes(int ordinal) const;

  // The `nth` call from now on (from 1), among all calls or those named `name`, returns `status` instead of
  // doing anything.
  void fail_call(std::uint64_t nth, CudaStatus status, std::string_view name = {});
  // The `nth` call from now on (from 1) of those named `name`, "cudaStreamWaitEvent" or "cudaEventRecord",
  // has no effect and returns success.
  void lose_call(std::uint64_t nth, std::string_view name);

  // Runs `other`, in place of another thread, just before the next cudaStreamWaitEvent.
  void before_next_wait(std::function<void()> other);
  // Runs `other`, in place of another thread, when the next cudaDeviceSynchronize has waited but not yet
  // returned.
  void after_next_synchronize(std::function<void()> other);

  // The host itself accesses page-locked memory; `name` is the purpose.
  void touch_on_host(AddressRange range, const std::string& name);
  // Sets the name of copies in findings from now on.
  void name_copies(std::string_view name);

  // The number of calls so far, of this name or of all. Queries of versions do not count.
  std::uint64_t calls(std::string_view name = {}) const;
  // The call that was made to fail, or "".
  std::string failed_call() const;

  // The names of the calling thread's profiling ranges, the innermost last.
  std::vector<std::string> ranges() const;

  // All misuse so far.
  std::vector<std::string> misuses() const;
  // Uses of events that are permitted but slow because of the event's kind; each kind of use once.
  std::set<std::string> dear_events() const;
  // Unordered accesses, and uses of memory that is not mapped or not accessible to the GPU.
  std::vector<SimFinding> findings() const;
  // The number of misuses and findings so far.
  std::size_t wrong() const;
  // Leaks, except of resources whose releasing call was made to fail.
  std::vector<std::string> leaks() const;
  // The mapped bytes of all GPUs' memory, with each allocation counted once, however many places it has;
  // their peak; and the peak of page-locked memory.
  std::uint64_t mapped_bytes() const;
  std::uint64_t peak_mapped_bytes() const;
  std::uint64_t peak_page_locked_bytes() const;

  // --- the calls ------------------------------------------------------------------------------------------
  std::string why_missing() const override { return ""; }
  std::string error_name(CudaStatus status) const override;
  CudaStatus get_last_error() override;
  CudaStatus peek_at_last_error() override;
  CudaStatus driver_version(int& version) override;
  int runtime_version() const override { return 13000; }
  CudaStatus device_count(int& count) override;
  CudaStatus get_device(int& ordinal) override;
  CudaStatus set_device(int ordinal) override;
  CudaStatus current_context(CudaContextHandle& context) override;
  CudaStatus set_current_context(CudaContextHandle context) override;
  CudaStatus device_info(CudaDeviceInfo& info, int ordinal) override;
  CudaStatus context_is_active(bool& active, int ordinal) override;
  CudaStatus gpu_free_bytes(std::uint64_t& free, int ordinal) override;
  CudaStatus card_free_bytes(std::uint64_t& free, int ordinal) override;
  CudaStatus memory_info(std::uint64_t& free, std::uint64_t& total) override;
  CudaStatus can_access_peer(bool& can, int ordinal, int peer) override;
  CudaStatus enable_peer_access(int peer) override;
  CudaStatus stream_create(CudaStream& stream) override;
  CudaStatus stream_destroy(CudaStream stream) override;
  CudaStatus stream_synchronize(CudaStream stream) override;
  CudaStatus stream_query(CudaStream stream) override;
  CudaStatus stream_id(std::uint64_t& id, CudaStream stream) override;
  CudaStatus stream_is_capturing(bool& capturing, CudaStream stream) override;
  CudaStatus device_synchronize() override;
  CudaStatus stream_wait_event(CudaStream stream, CudaEvent event) override;
  CudaStatus event_create(CudaEvent& event, const CudaEventKind& kind) override;
  CudaStatus event_destroy(CudaEvent event) override;
  CudaStatus event_record(CudaEvent event, CudaStream stream) override;
  CudaStatus event_query(CudaEvent event) override;
  CudaStatus event_synchronize(CudaEvent event) override;
  CudaStatus event_elapsed_time(float& milliseconds, CudaEvent begin, CudaEvent end) override;
  CudaStatus memcpy_async(std::uint64_t destination, std::uint64_t source, std::uint64_t bytes,
                          CopyDirection direction, CudaStream stream) override;
  CudaStatus stream_begin_capture(CudaStream stream) override {
    return stream_begin_capture(stream, CaptureMode::kThreadLocal);
  }
  CudaStatus thread_exchange_capture_mode(CaptureMode& mode) override;
  CudaStatus stream_end_capture(CudaGraph& graph, CudaStream stream) override;
  CudaStatus graph_destroy(CudaGraph graph) override;
  CudaStatus graph_instantiate(CudaExec& exec, CudaGraph graph) override;
  CudaStatus graph_exec_destroy(CudaExec exec) override;
  CudaStatus graph_launch(CudaExec exec, CudaStream stream) override;
  void range_push(const std::string& name) override;
  void range_pop() override;
  CudaStatus host_register(AddressRange range) override;
  CudaStatus host_unregister(std::uint64_t address) override;
  CudaStatus malloc(std::uint64_t& address, std::uint64_t bytes) override;
  CudaStatus free(std::uint64_t address) override;
  CudaStatus allocation_granularity(std::uint64_t& bytes, const CudaMemoryKind& kind) override;
  CudaStatus address_reserve(std::uint64_t& address, std::uint64_t bytes, std::uint64_t alignment) override;
  CudaStatus address_free(AddressRange reservation) override;
  CudaStatus memory_create(std::uint64_t& handle, std::uint64_t bytes, const CudaMemoryKind& kind) override;
  CudaStatus memory_release(std::uint64_t handle) override;
  CudaStatus memory_map(AddressRange range, std::uint64_t handle) override;
  CudaStatus memory_set_access(AddressRange range, std::span<const int> ordinals) override;
  CudaStatus memory_unmap(AddressRange range) override;

 private:
  using Clock = std::chrono::steady_clock;

  // One recording of an event.
  struct Recording {
    bool done = false;
    Clock::time_point when;
    double seconds = 0;  // on the clock
    Frontier after;      // what the recording comes after
  };
  struct Recorded {
    std::shared_ptr<Recording> recording;
  };
  struct Waiting {
    std::shared_ptr<const Recording> recording;
  };
  struct Held {
    std::function<bool()> ready;
  };
  using Kernel = std::function<void()>;

  // Whether the resource was released. If its releasing call was made to fail, it is no leak.
  struct Owned {
    bool destroyed = false;
    bool excused = false;
  };
  // Memory of an allocation node. It exists from the launch of its graph until it is freed.
  struct GraphMemory : Owned {
    GraphMemory(Mapping space_, AddressRange range_, int ordinal_)
        : space(std::move(space_)), range(range_), ordinal(ordinal_) {}
    Mapping space;
    AddressRange range;
    int ordinal = 0;
    const void* allocated_in = nullptr;  // a capture
    const void* freed_in = nullptr;      // a capture; null: in no graph
    bool live = false;
  };

  struct Stream;
  struct Graph;
  // A piece of a graph, the nodes that it comes after, and the nodes that come after it.
  struct Node {
    Kernel kernel;
    std::string name;
    std::vector<Access> reads;
    std::vector<Access> writes;
    std::size_t lane = 0;  // which of the captured streams recorded it
    std::set<std::size_t> after;
    std::vector<std::size_t> before;
    GraphMemory* allocates = nullptr;
    GraphMemory* frees = nullptr;

    bool is_of_memory() const { return allocates != nullptr || frees != nullptr; }
    FakeAccesses accesses() const { return {.name = name, .reads = reads, .writes = writes}; }
  };
  // The nodes in an order in which they could run.
  using Nodes = std::vector<Node>;
  struct Capture {
    std::vector<const Stream*> streams;  // the first began the capture
    std::uint64_t thread = 0;            // thread_number()
    CaptureMode mode = CaptureMode::kThreadLocal;
    Graph* into = nullptr;  // null: a new graph
    bool valid = true;
    bool ended = false;
    Nodes nodes;
  };
  // The place of a stream, or of an event's recording, in a capture; null if in none.
  struct Place {
    std::shared_ptr<Capture> capture;
    std::set<std::size_t> after;
  };
  struct Launched {
    std::shared_ptr<const Nodes> nodes;
    std::vector<std::size_t> awaited;  // for each node: how many earlier nodes have not run
    std::vector<std::size_t> ready;
  };
  using Piece = std::variant<Kernel, Recorded, Waiting, Held, Launched>;

  struct Given {
    Piece piece;
    double seconds = 0;  // on the clock: when the host had submitted it
  };

  struct Amount {
    std::uint64_t bytes = 0;
    std::uint64_t peak_bytes = 0;
    void add(std::uint64_t more) {
      bytes += more;
      peak_bytes = std::max(peak_bytes, bytes);
    }
  };

  struct Stream : Owned {
    FakeCuda* owner = nullptr;
    StreamId id = 0;
    int ordinal = 0;
    bool blocking = false;  // takes turns with the legacy default stream
    bool is_default = false;
    std::deque<Given> pieces;
    std::uint64_t given = 0;                  // submitted pieces
    std::map<StreamId, std::uint64_t> after;  // how many pieces of each other stream it comes after
    Place place;
  };
  struct Event : Owned {
    int ordinal = 0;
    CudaEventKind kind;
    std::shared_ptr<Recording> latest;  // null: never recorded, or in a capture
    Place place;
  };
  struct Graph : Owned {
    std::size_t lanes = 0;
    Nodes nodes;
  };
  struct Exec : Owned {
    int ordinal = 0;
    const Graph* graph = nullptr;
    std::vector<StreamId> lanes;
    std::shared_ptr<const Nodes> nodes;
  };
  struct Block : Owned {  // of memory_create; uses memory while owned or mapped
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;  // in memory_
    CudaMemoryKind kind;
    std::set<std::uint64_t> places;  // begins of the ranges where it is mapped
  };
  struct Mapped : Owned {
    std::uint64_t bytes = 0;
    std::uint64_t handle = 0;
  };
  struct Reserved : Owned {
    explicit Reserved(Mapping space_) : space(std::move(space_)) {}
    Mapping space;
  };
  struct Allocated : Owned {  // of malloc
    Allocated(Mapping space_, AddressRange range_, int ordinal_)
        : space(std::move(space_)), range(range_), ordinal(ordinal_) {}
    Mapping space;
    AddressRange range;
    int ordinal = 0;
  };
  struct Registered : Owned {
    std::uint64_t bytes = 0;
  };
  struct Thread {
    int ordinal = 0;
    CudaContextHandle context = nullptr;
    CaptureMode capture_mode = CaptureMode::kGlobal;
    CudaStatus last_error = CudaStatus::kSuccess;  // of calls of the runtime only
    bool calls_runtime = true;                     // otherwise the driver or its management library
    std::vector<std::string> ranges;
    std::map<int, Stream*> default_streams;  // by ordinal
  };

  // Begins a call: success, or the status that the call returns at once. `releases` names the resource that
  // the call releases.
  CudaStatus begin(std::string_view name, Owned* releases = nullptr);
  // Like begin(), for a call that works even if the context is corrupted.
  CudaStatus begin_without_context(std::string_view name, Owned* releases = nullptr);
  // Whether this call, which has begun, is the one to be lost.
  bool is_lost(std::string_view name);
  // Like begin(), for a call that CUDA counts as potentially unsafe while streams are captured (CUDA Runtime
  // API, cudaThreadExchangeStreamCaptureMode()).
  CudaStatus begin_unsafe(std::string_view name, Owned* releases = nullptr);
  // For a call of the runtime that needs a context: a thread without a context begins to use its GPU, or the
  // first GPU if it has set none (CUDA Programming Guide, "Initialization").
  void use_gpu();
  CudaContextHandle primary_context(int ordinal);
  // The error with which the context of the calling thread's GPU is corrupted; success if it is not.
  CudaStatus corruption();
  std::function<void()> take(std::function<void()>& other);
  CudaStatus finish(CudaStatus status);
  CudaStatus wait_for_device();
  CudaStatus misuse(std::string_view call, std::string_view what);
  Thread& thread() { return threads_[thread_number()]; }

  // The live object at this address, or null.
  template <class Kind>
  static Kind* find(const std::vector<std::unique_ptr<Kind>>& all, const void* handle);
  Stream* find_stream(CudaStream stream);
  Stream& add_stream();
  CudaStatus create(CudaStream& stream, bool blocking);
  // The legacy stream of the calling thread's GPU.
  Stream& legacy_stream();
  Stream& thread_stream();
  // Before the stream gets more work, orders it after the streams for which CUDA makes it wait implicitly.
  CudaStatus take_turns(Stream& stream);
  void order(Stream& earlier, Stream& later);
  void end_default_streams(int ordinal);
  Event* find_event(CudaEvent event);
  CudaStatus append(std::string_view call, CudaStream stream, Piece piece);
  // Appends a kernel or a copy, or puts it into the graph that is being captured.
  CudaStatus give(std::string_view call, CudaStream stream, Kernel kernel, const FakeAccesses& accesses);
  CudaStatus put(Stream& stream, Kernel kernel, const FakeAccesses& accesses);
  CudaStatus invalidate(Capture& capture, CudaStatus status);
  // Success, or CUDA's error if captures forbid every thread to query, or wait for, the work of the stream or
  // the GPU. Invalidates these captures.
  CudaStatus check_no_capture(const Stream& stream);
  CudaStatus check_no_capture(int ordinal);
  // The capture of a blocking stream of the GPU, or null.
  Capture* capture_of_blocking(int ordinal) const;
  CudaStatus malloc_in_capture(std::uint64_t& address, std::uint64_t bytes, Stream& stream);
  CudaStatus free_in_capture(std::uint64_t address, Stream& stream);
  CudaStatus free_of_graph(GraphMemory& memory, CudaStream stream);
  // Success, or the error with which CUDA would refuse the launch.
  CudaStatus check_memory(const Nodes& nodes);
  void begin_life(GraphMemory& memory);
  void end_life(GraphMemory& memory);
  GraphMemory* find_graph_memory(std::uint64_t address);
  CudaStatus wait_in_capture(Stream& stream, const Event& event);
  CudaStatus record_in_capture(const Stream& stream, Event& event);
  // Refuses calls that an event recorded in a capture does not support.
  CudaStatus check_not_captured(const Event& event);
  // Whether the stream that began the capture comes after all work of its streams.
  static bool is_joined(const Capture& capture);
  void end(Capture& capture);
  void copy(int ordinal, std::uint64_t destination, std::uint64_t source, std::uint64_t bytes,
            CopyDirection direction);
  // Checks work that the GPU gets; `stream` is one of order_.
  void check(int ordinal, StreamId stream, const FakeAccesses& accesses);
  // Checks all work of a graph launched on `stream`.
  void check(const Stream& stream, const Exec& exec);
  bool is_accessible(AddressRange range, int ordinal) const;
  bool can_reach(AddressRange range, int ordinal) const;
  bool is_allocated(AddressRange range) const;
  bool is_of_graph(AddressRange range) const;
  bool is_registered(AddressRange range) const;
  // Whether the range lies in one reservation.
  bool is_reserved(AddressRange range) const;
  // Calls visit(mapped) for each mapping in `range`; returns whether the mappings cover it.
  template <class Mappings, class Visitor>
  static bool cover(Mappings& mappings, AddressRange range, const Visitor& visit);

  // The host learns, by a wait or a query, that a recording is done.
  void know(const Recording* reached);
  bool can_run(const Stream& stream) const;
  // The host's submission, on the clock if there is one. Returns its time.
  double host_submits();
  void gpu_waits_until(double seconds);
  // The host has seen something that happened at this time, so its clock is at least there.
  void host_saw(double seconds) { host_seconds_ = std::max(host_seconds_, seconds); }
  double clock_seconds() const { return options_.clock ? *options_.clock : 0; }
  void run_one(Stream& stream);
  void run_node(Launched& launched);
  // Runs a drawn piece of a drawn stream; false if nothing can run.
  bool run_some();
  // Lets the GPUs go on while the host makes calls: not at all with every fourth seed, and at different
  // speeds with the others.
  void run_awhile();
  bool others_go_on();
  CudaStatus run_all(std::string_view call, int ordinal);
  template <class Predicate>
  CudaStatus run_until(std::string_view call, const Predicate& done);
  std::uint64_t free_bytes(int ordinal);
  // The kind of mapping for memory that is allocated together with its addresses (cudaMalloc's and graphs').
  Mapping::Kind kind() const {
    return options_.logical_memory ? Mapping::Kind::kReserved : Mapping::Kind::kUntouched;
  }
  CudaStatus take(std::uint64_t& address, std::uint64_t bytes, int ordinal);
  void give_back(std::uint64_t address);
  void allow(AddressRange range, int ordinal);
  Block* find_block(std::uint64_t handle);
  void drop_if_unused(const Block& block);
  void add_place(Block& block, AddressRange range);
  void remove_place(Block& block, AddressRange range);

  const FakeCudaOptions options_;
  mutable std::mutex mutex_;  // guards all members below
  std::mt19937_64 random_;
  std::map<std::uint64_t, Thread> threads_;  // by thread_number()
  std::deque<int> contexts_;                 // ordinals; a handle is the address of one
  std::map<int, int*> primary_contexts_;     // by ordinal
  std::set<int> active_;                     // ordinals of GPUs whose primary context is in use
  std::map<int, CudaStatus> corrupted_;      // by ordinal; absent: not corrupted
  std::map<std::string, std::uint64_t, std::less<>> calls_;
  std::uint64_t all_calls_ = 0;
  std::uint64_t until_failure_ = 0;  // in calls; 0: none fails
  std::string failing_name_;
  CudaStatus failure_ = CudaStatus::kSuccess;
  std::string failed_call_;
  std::uint64_t until_loss_ = 0;  // in calls; 0: none is lost
  std::string losing_name_;
  std::function<void()> before_next_wait_;
  std::function<void()> after_next_synchronize_;
  double host_seconds_ = 0;  // on the clock
  std::vector<std::string> misuses_;
  std::set<std::string> dear_events_;
  // Streams are never forgotten, so the fake recognises destroyed handles.
  std::vector<std::unique_ptr<Stream>> streams_;
  std::map<int, Stream*> legacy_streams_;  // by ordinal
  std::unordered_map<CudaEvent, std::unique_ptr<Event>> events_;
  std::vector<std::unique_ptr<Graph>> graphs_;
  std::vector<std::unique_ptr<Exec>> execs_;
  std::vector<std::shared_ptr<Capture>> captures_;     // under way
  std::vector<Block> blocks_;                          // handle - 1
  std::set<std::pair<int, int>> entered_;              // (GPU, owner): may access the owner's malloc memory
  std::map<int, Amount> taken_;                        // by ordinal
  std::map<std::uint64_t, Reserved> reserved_;         // by begin
  std::map<std::uint64_t, Mapped> mapped_;             // by begin
  std::map<std::uint64_t, Allocated> allocated_;       // by begin
  std::map<std::uint64_t, GraphMemory> graph_memory_;  // by begin; never forgotten
  FakeMemory memory_{options_.logical_memory};         // for blocks
  Amount mapped_amount_;
  IntervalMap<std::uint64_t> accessible_;       // one bit per GPU
  std::map<std::uint64_t, Registered> pinned_;  // by begin
  Amount pinned_amount_;
  CudaOrder order_;
  std::string copy_name_ = "cudaMemcpyAsync";
};

}  // namespace vdnn
