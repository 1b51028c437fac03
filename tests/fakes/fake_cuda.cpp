#include "tests/fakes/fake_cuda.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <utility>

#include "vdnn/size.h"

namespace vdnn {

namespace {

// The alignment of CUDA's large allocations.
constexpr std::uint64_t kMallocAlignment = std::uint64_t{2} << 20;
// Default streams have the handles 0, 1 (cudaStreamLegacy) and 2 (cudaStreamPerThread).
constexpr std::uintptr_t kStreamPerThread = 2;

// Whether the process has mapped any page of `range`.
bool is_mapped(AddressRange range) {
  const std::uint64_t begin = range.begin / kPageBytes * kPageBytes;
  std::vector<unsigned char> pages((range.end() - begin + kPageBytes - 1) / kPageBytes);
  return mincore(pointer_to<void>(begin), range.end() - begin, pages.data()) == 0;
}

}  // namespace

// --- calls of tests ---------------------------------------------------------------------------------------

CudaStatus FakeCuda::launch(CudaStream stream, std::function<void()> kernel, const FakeAccesses& accesses) {
  FakeCuda& self = *static_cast<Stream*>(stream)->owner;
  const std::lock_guard lock(self.mutex_);
  self.run_awhile();
  Thread& mine = self.thread();
  mine.calls_runtime = true;
  self.use_gpu();
  CudaStatus status = self.finish(self.corruption());
  if (status == CudaStatus::kSuccess) {
    status = self.give("cudaLaunchKernel", stream, std::move(kernel), accesses);
  }
  if (status != CudaStatus::kSuccess) {
    mine.last_error = CudaStatus::kSuccess;
  }
  return status;
}

CudaStatus FakeCuda::hold(CudaStream stream, std::function<bool()> ready) {
  FakeCuda& self = *static_cast<Stream*>(stream)->owner;
  const std::lock_guard lock(self.mutex_);
  return self.append("cudaLaunchKernel", stream, Held{std::move(ready)});
}

void FakeCuda::read_in_kernel(CudaStream stream, AddressRange range, std::string_view name) {
  const Stream& mine = *static_cast<const Stream*>(stream);
  if (!mine.owner->is_accessible(range, mine.ordinal)) {
    mine.owner->order_.missing(range, name, "memory that is not there, or no access to it");
  }
}

void FakeCuda::rest() {
  const std::lock_guard lock(mutex_);
  while (run_some()) {
  }
}

bool FakeCuda::is_device_address(CudaStream stream, std::uint64_t address) {
  const FakeCuda& self = *static_cast<const Stream*>(stream)->owner;
  const std::lock_guard lock(self.mutex_);
  return self.is_reserved({.begin = address, .bytes = 1});
}

void FakeCuda::launch_that_corrupts(CudaStream stream, CudaStatus status) {
  Stream& mine = *static_cast<Stream*>(stream);
  launch(stream, [&mine, status] { mine.owner->corrupted_.emplace(mine.ordinal, status); });
}

void FakeCuda::lose_call(std::uint64_t nth, std::string_view name) {
  const std::lock_guard lock(mutex_);
  until_loss_ = nth;
  losing_name_ = name;
}

void FakeCuda::touch_on_host(AddressRange range, const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (!is_registered(range)) {
    order_.missing(range, name, "memory that is not page-locked");
  }
  order_.host_accesses(range, name);
}

void FakeCuda::name_copies(std::string_view name) {
  const std::lock_guard lock(mutex_);
  copy_name_ = name;
}

int FakeCuda::gpu_of_thread() {
  const std::lock_guard lock(mutex_);
  return thread().ordinal;
}

bool FakeCuda::has_own_context() {
  const std::lock_guard lock(mutex_);
  const CudaContextHandle current = thread().context;
  return current != nullptr && std::ranges::none_of(primary_contexts_, [current](const auto& primary) {
           return primary.second == current;
         });
}

void FakeCuda::take_memory(int ordinal, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  taken_[ordinal].add(bytes);
}

void FakeCuda::return_memory(int ordinal, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  taken_[ordinal].bytes -= bytes;
}

std::uint64_t FakeCuda::peak_bytes(int ordinal) const {
  const std::lock_guard lock(mutex_);
  const auto it = taken_.find(ordinal);
  return it == taken_.end() ? 0 : it->second.peak_bytes;
}

std::uint64_t FakeCuda::free_bytes(int ordinal) {
  return options_.memory_bytes - options_.used_bytes - taken_[ordinal].bytes;
}

bool FakeCuda::uses(int ordinal) const {
  const std::lock_guard lock(mutex_);
  return active_.contains(ordinal);
}

void FakeCuda::fail_call(std::uint64_t nth, CudaStatus status, std::string_view name) {
  const std::lock_guard lock(mutex_);
  until_failure_ = nth;
  failing_name_ = name;
  failure_ = status;
  failed_call_.clear();
}

void FakeCuda::before_next_wait(std::function<void()> other) {
  const std::lock_guard lock(mutex_);
  before_next_wait_ = std::move(other);
}

void FakeCuda::after_next_synchronize(std::function<void()> other) {
  const std::lock_guard lock(mutex_);
  after_next_synchronize_ = std::move(other);
}

std::function<void()> FakeCuda::take(std::function<void()>& other) {
  const std::lock_guard lock(mutex_);
  return std::exchange(other, nullptr);
}

std::uint64_t FakeCuda::calls(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  if (name.empty()) {
    return all_calls_;
  }
  const auto it = calls_.find(name);
  return it == calls_.end() ? 0 : it->second;
}

std::string FakeCuda::failed_call() const {
  const std::lock_guard lock(mutex_);
  return failed_call_;
}

std::vector<std::string> FakeCuda::ranges() const {
  const std::lock_guard lock(mutex_);
  const auto it = threads_.find(thread_number());
  return it == threads_.end() ? std::vector<std::string>() : it->second.ranges;
}

std::vector<std::string> FakeCuda::misuses() const {
  const std::lock_guard lock(mutex_);
  return misuses_;
}

std::set<std::string> FakeCuda::dear_events() const {
  const std::lock_guard lock(mutex_);
  return dear_events_;
}

std::vector<SimFinding> FakeCuda::findings() const {
  const std::lock_guard lock(mutex_);
  return order_.findings();
}

std::size_t FakeCuda::wrong() const {
  const std::lock_guard lock(mutex_);
  return misuses_.size() + order_.findings().size();
}

std::vector<std::string> FakeCuda::leaks() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> leaks;
  const auto look = [&leaks](const Owned& owned, const char* what, std::uint64_t bytes) {
    if (!owned.destroyed && !owned.excused) {
      leaks.push_back(what + (bytes == 0 ? "" : " of " + format_size(bytes)));
    }
  };
  for (const auto& stream : streams_) {
    if (!stream->is_default) {
      look(*stream, "a stream", 0);
    }
    if (stream->destroyed && !stream->pieces.empty()) {
      leaks.emplace_back("work in flight on a stream that was destroyed");
    }
  }
  for (const auto& [handle, event] : events_) {
    look(*event, "an event", 0);
  }
  std::ranges::for_each(graphs_, [&](const auto& graph) { look(*graph, "a graph", 0); });
  std::ranges::for_each(execs_, [&](const auto& exec) { look(*exec, "a graph that can be launched", 0); });
  if (!captures_.empty()) {
    leaks.emplace_back("a capture that did not end");
  }
  std::ranges::for_each(blocks_, [&](const Block& block) { look(block, "memory", block.bytes); });
  for (const auto& [begin, reserved] : reserved_) {
    look(reserved, "a reservation", reserved.space.range().bytes);
  }
  for (const auto& [begin, allocated] : allocated_) {
    look(allocated, "an allocation", allocated.range.bytes);
  }
  for (const auto& [begin, memory] : graph_memory_) {
    if (memory.live) {
      look(memory, "memory of a graph", memory.range.bytes);
    }
  }
  for (const auto& [begin, mapped] : mapped_) {
    look(mapped, "a mapping", mapped.bytes);
  }
  for (const auto& [begin, registered] : pinned_) {
    look(registered, "page-locked memory", registered.bytes);
    if (!is_mapped({.begin = begin, .bytes = registered.bytes})) {
      leaks.emplace_back("memory that was unmapped and is still page-locked");
    }
  }
  return leaks;
}

std::uint64_t FakeCuda::mapped_bytes() const {
  const std::lock_guard lock(mutex_);
  return mapped_amount_.bytes;
}

std::uint64_t FakeCuda::peak_mapped_bytes() const {
  const std::lock_guard lock(mutex_);
  return mapped_amount_.peak_bytes;
}

std::uint64_t FakeCuda::peak_page_locked_bytes() const {
  const std::lock_guard lock(mutex_);
  return pinned_amount_.peak_bytes;
}

// --- calls in general --------------------------------------------------------------------------------------

CudaStatus FakeCuda::corruption() {
  const auto it = corrupted_.find(thread().ordinal);
  return it == corrupted_.end() ? CudaStatus::kSuccess : it->second;
}

CudaStatus FakeCuda::begin(std::string_view name, Owned* releases) {
  const CudaStatus status = begin_without_context(name, releases);
  if (status != CudaStatus::kSuccess) {
    return status;
  }
  if (thread().calls_runtime) {
    use_gpu();
  }
  return finish(corruption());
}

CudaContextHandle FakeCuda::primary_context(int ordinal) {
  int*& mine = primary_contexts_[ordinal];
  if (mine == nullptr) {
    mine = &contexts_.emplace_back(ordinal);
  }
  return mine;
}

void FakeCuda::use_gpu() {
  Thread& mine = thread();
  if (mine.context == nullptr) {
    mine.context = primary_context(mine.ordinal);
  }
  if (mine.context == primary_context(mine.ordinal) && active_.insert(mine.ordinal).second) {
    taken_[mine.ordinal].add(options_.context_bytes);
  }
}

CudaStatus FakeCuda::begin_without_context(std::string_view name, Owned* releases) {
  thread().calls_runtime = name.starts_with("cuda");
  ++all_calls_;
  auto count = calls_.find(name);
  if (count == calls_.end()) {
    count = calls_.emplace(name, 0).first;
  }
  ++count->second;
  run_awhile();
  if (until_failure_ != 0 && (failing_name_.empty() || failing_name_ == name) && --until_failure_ == 0) {
    failed_call_ = name;
    if (releases != nullptr) {
      releases->excused = true;
    }
    return finish(failure_);
  }
  return CudaStatus::kSuccess;
}

bool FakeCuda::is_lost(std::string_view name) {
  return until_loss_ != 0 && losing_name_ == name && --until_loss_ == 0;
}

CudaStatus FakeCuda::begin_unsafe(std::string_view name, Owned* releases) {
  if (const CudaStatus status = begin(name, releases); status != CudaStatus::kSuccess) {
    return status;
  }
  const CaptureMode mode = thread().capture_mode;
  const auto forbids = [mode](const std::shared_ptr<Capture>& capture) {
    const bool is_mine = capture->thread == thread_number();
    return mode != CaptureMode::kRelaxed &&
           (is_mine ? capture->mode != CaptureMode::kRelaxed
                    : mode == CaptureMode::kGlobal && capture->mode == CaptureMode::kGlobal);
  };
  CudaStatus status = CudaStatus::kSuccess;
  for (const std::shared_ptr<Capture>& capture : captures_) {
    if (forbids(capture)) {
      status = invalidate(*capture, CudaStatus::kStreamCaptureUnsupported);
    }
  }
  return status;
}

CudaStatus FakeCuda::finish(CudaStatus status) {
  const bool is_error = status != CudaStatus::kSuccess && status != CudaStatus::kNotReady;
  if (is_error && thread().calls_runtime) {
    thread().last_error = status;
  }
  return status;
}

CudaStatus FakeCuda::misuse(std::string_view call, std::string_view what) {
  misuses_.push_back(std::string(call) + ": " + std::string(what));
  return finish(CudaStatus::kInvalidValue);
}

std::string FakeCuda::error_name(CudaStatus status) const {
  switch (status) {
    case CudaStatus::kInvalidValue:
      return "cudaErrorInvalidValue";
    case CudaStatus::kMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case CudaStatus::kIllegalAddress:
      return "cudaErrorIllegalAddress";
    default:
      return "error " + std::to_string(static_cast<int>(status));
  }
}

CudaStatus FakeCuda::get_last_error() {
  const std::lock_guard lock(mutex_);
  const CudaStatus last = std::exchange(thread().last_error, CudaStatus::kSuccess);
  // Nothing clears this error.
  return corruption() == CudaStatus::kSuccess ? last : corruption();
}

CudaStatus FakeCuda::peek_at_last_error() {
  const std::lock_guard lock(mutex_);
  return corruption() == CudaStatus::kSuccess ? thread().last_error : corruption();
}

CudaStatus FakeCuda::driver_version(int& version) {
  version = options_.driver_version;
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::device_count(int& count) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin_without_context("cudaGetDeviceCount");
      status != CudaStatus::kSuccess || corruption() != CudaStatus::kSuccess) {
    return status != CudaStatus::kSuccess ? status : finish(corruption());
  }
  if (options_.driver_version < runtime_version()) {
    return finish(CudaStatus::kInsufficientDriver);
  }
  count = options_.gpus;
  return finish(count == 0 ? CudaStatus::kNoDevice : CudaStatus::kSuccess);
}

CudaStatus FakeCuda::get_device(int& ordinal) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin_without_context("cudaGetDevice"); status != CudaStatus::kSuccess) {
    return status;
  }
  ordinal = thread().ordinal;
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::set_device(int ordinal) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin_without_context("cudaSetDevice"); status != CudaStatus::kSuccess) {
    return status;
  }
  if (ordinal < 0 || ordinal >= options_.gpus) {
    return finish(CudaStatus::kInvalidDevice);
  }
  thread().ordinal = ordinal;
  thread().context = primary_context(ordinal);
  use_gpu();
  return CudaStatus::kSuccess;
}

CudaContextHandle FakeCuda::make_context(int ordinal) {
  const std::lock_guard lock(mutex_);
  return &contexts_.emplace_back(ordinal);
}

CudaStatus FakeCuda::current_context(CudaContextHandle& context) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin_without_context("cuCtxGetCurrent"); status != CudaStatus::kSuccess) {
    return status;
  }
  context = thread().context;
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::set_current_context(CudaContextHandle context) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin_without_context("cuCtxSetCurrent"); status != CudaStatus::kSuccess) {
    return status;
  }
  const auto found =
      std::ranges::find(contexts_, context, [](const int& each) -> const void* { return &each; });
  if (context != nullptr && found == contexts_.end()) {
    return misuse("cuCtxSetCurrent", "no such context");
  }
  thread().context = context;
  if (context != nullptr) {
    thread().ordinal = *found;
  }
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::device_info(CudaDeviceInfo& info, int ordinal) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin("cuDeviceGetAttribute"); status != CudaStatus::kSuccess) {
    return status;
  }
  if (ordinal < 0 || ordinal >= options_.gpus) {
    return finish(CudaStatus::kInvalidDevice);
  }
  info = {.name = "Fake GPU " + std::to_string(ordinal),
          .uuid = {0xfa, static_cast<unsigned char>(options_.first_card + ordinal)},
          .compute_capability = options_.compute_capability,
          .virtual_memory = options_.virtual_memory,
          .file_handles = options_.file_handles,
          .rdma = options_.rdma,
          .host_node = options_.host_node};
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::context_is_active(bool& active, int ordinal) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin_without_context("cuDevicePrimaryCtxGetState");
      status != CudaStatus::kSuccess) {
    return status;
  }
  active = active_.contains(ordinal);
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::device_reset() {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin("cudaDeviceReset"); status != CudaStatus::kSuccess) {
    return status;
  }
  const int ordinal = thread().ordinal;
  const auto lives_there = [ordinal](const auto& owned) {
    return !owned->destroyed && owned->ordinal == ordinal;
  };
  const auto is_used = [&](const auto& stream) { return !stream->is_default && lives_there(stream); };
  const auto event_of = [](const auto& entry) { return entry.second.get(); };
  if (std::ranges::any_of(streams_, is_used) || std::ranges::any_of(events_, lives_there, event_of)) {
    return misuse("cudaDeviceReset", "a stream or an event of the GPU still exists");
  }
  end_default_streams(ordinal);
  if (active_.erase(ordinal) != 0) {
    taken_[ordinal].bytes -= options_.context_bytes;
  }
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::gpu_free_bytes(std::uint64_t& free, int ordinal) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin_without_context("cuMemGetInfo"); status != CudaStatus::kSuccess) {
    return status;
  }
  if (ordinal < 0 || ordinal >= options_.gpus) {
    return finish(CudaStatus::kInvalidDevice);
  }
  const std::uint64_t context_bytes = active_.contains(ordinal) ? 0 : options_.context_bytes;
  if (context_bytes > free_bytes(ordinal)) {
    return finish(CudaStatus::kMemoryAllocation);
  }
  taken_[ordinal].add(context_bytes);
  free = free_bytes(ordinal);
  taken_[ordinal].bytes -= context_bytes;
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::card_free_bytes(std::uint64_t& free, int ordinal) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin_without_context("nvmlDeviceGetMemoryInfo");
      status != CudaStatus::kSuccess) {
    return status;
  }
  free = free_bytes(ordinal);
  return options_.nvml ? CudaStatus::kSuccess : CudaStatus::kNotSupported;
}

CudaStatus FakeCuda::memory_info(std::uint64_t& free, std::uint64_t& total) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin("cudaMemGetInfo"); status != CudaStatus::kSuccess) {
    return status;
  }
  total = options_.memory_bytes;
  free = free_bytes(thread().ordinal);
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::can_access_peer(bool& can, int ordinal, int peer) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin_without_context("cudaDeviceCanAccessPeer");
      status != CudaStatus::kSuccess) {
    return status;
  }
  const auto exists = [this](int gpu) { return gpu >= 0 && gpu < options_.gpus; };
  if (!exists(ordinal) || !exists(peer)) {
    return finish(CudaStatus::kInvalidDevice);
  }
  can = options_.peers && ordinal != peer;
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::enable_peer_access(int peer) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin("cudaDeviceEnablePeerAccess"); status != CudaStatus::kSuccess) {
    return status;
  }
  const int ordinal = thread().ordinal;
  if (!options_.peers || ordinal == peer) {
    return misuse("cudaDeviceEnablePeerAccess", "the GPU cannot access memory of the other GPU");
  }
  if (!entered_.emplace(ordinal, peer).second) {
    return finish(CudaStatus::kPeerAccessAlreadyEnabled);
  }
  for (const auto& [begin, allocated] : allocated_) {
    if (allocated.ordinal == peer) {
      allow(allocated.range, ordinal);
    }
  }
  return CudaStatus::kSuccess;
}

// --- streams and events ------------------------------------------------------------------------------------

template <class Kind>
Kind* FakeCuda::find(const std::vector<std::unique_ptr<Kind>>& all, const void* handle) {
  const auto it = std::ranges::find(all, handle, [](const auto& each) -> const void* { return each.get(); });
  return it == all.end() || (*it)->destroyed ? nullptr : it->get();
}

FakeCuda::Event* FakeCuda::find_event(CudaEvent event) {
  const auto it = events_.find(event);
  return it == events_.end() || it->second->destroyed ? nullptr : it->second.get();
}

FakeCuda::Stream* FakeCuda::find_stream(CudaStream stream) {
  const auto handle = reinterpret_cast<std::uintptr_t>(stream);
  if (handle > kStreamPerThread) {
    return find(streams_, stream);
  }
  return handle == kStreamPerThread ? &thread_stream() : &legacy_stream();
}

CudaStream FakeCuda::stream_of(CudaStream stream) {
  const std::lock_guard lock(mutex_);
  return find_stream(stream);
}

FakeCuda::Stream& FakeCuda::add_stream() {
  Stream& made = *streams_.emplace_back(std::make_unique<Stream>());
  made.owner = this;
  made.id = order_.add_stream();
  made.ordinal = thread().ordinal;
  return made;
}

FakeCuda::Stream& FakeCuda::legacy_stream() {
  Stream*& stream = legacy_streams_[thread().ordinal];
  if (stream == nullptr) {
    stream = &add_stream();
    stream->is_default = true;
  }
  return *stream;
}

FakeCuda::Stream& FakeCuda::thread_stream() {
  Stream*& stream = thread().default_streams[thread().ordinal];
  if (stream == nullptr) {
    stream = &add_stream();
    stream->is_default = true;
    stream->blocking = true;
  }
  return *stream;
}

void FakeCuda::end_default_streams(int ordinal) {
  for (const auto& stream : streams_) {
    stream->destroyed = stream->destroyed || (stream->is_default && stream->ordinal == ordinal);
  }
  legacy_streams_.erase(ordinal);
  for (auto& [id, each] : threads_) {
    each.default_streams.erase(ordinal);
  }
}

void FakeCuda::order(Stream& earlier, Stream& later) {
  std::uint64_t& known = later.after[earlier.id];
  if (known == earlier.given) {
    return;
  }
  known = earlier.given;
  order_.stream_waits(later.id, order_.recorded(earlier.id));
  if (!earlier.pieces.empty()) {
    const auto recording = std::make_shared<Recording>();
    recording->after = order_.recorded(earlier.id);
    earlier.pieces.push_back({.piece = Recorded{recording}, .seconds = host_seconds_});
    later.pieces.push_back({.piece = Waiting{recording}, .seconds = host_seconds_});
  }
}

CudaStatus FakeCuda::take_turns(Stream& stream) {
  const auto legacy = legacy_streams_.find(stream.ordinal);
  if (legacy == legacy_streams_.end()) {
    return CudaStatus::kSuccess;
  }
  if (legacy->second != &stream) {
    if (stream.blocking) {
      order(*legacy->second, stream);
    }
    return CudaStatus::kSuccess;
  }
  const auto is_blocking = [&stream](const auto& other) {
    return other->blocking && other->ordinal == stream.ordinal;
  };
  if (Capture* const capture = capture_of_blocking(stream.ordinal)) {
    return invalidate(*capture, CudaStatus::kStreamCaptureImplicit);
  }
  for (const auto& other : streams_) {
    if (is_blocking(other)) {
      order(*other, stream);
    }
  }
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::create(CudaStream& stream, bool blocking) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin("cudaStreamCreateWithFlags"); status != CudaStatus::kSuccess) {
    return status;
  }
  Stream& made = add_stream();
  made.blocking = blocking;
  stream = &made;
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::stream_create(CudaStream& stream) {
  return create(stream, /*blocking=*/false);
}

CudaStatus FakeCuda::stream_create_blocking(CudaStream& stream) {
  return create(stream, /*blocking=*/true);
}

CudaStatus FakeCuda::stream_destroy(CudaStream stream) {
  const std::lock_guard lock(mutex_);
  Stream* const mine = find_stream(stream);
  if (const CudaStatus status = begin("cudaStreamDestroy", mine); status != CudaStatus::kSuccess) {
    return status;
  }
  if (mine == nullptr || mine->is_default) {
    return misuse("cudaStreamDestroy", "no such stream, or a default stream");
  }
  if (mine->place.capture) {
    return misuse("cudaStreamDestroy", "the stream is being captured");
  }
  mine->destroyed = true;  // its submitted work still runs
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::stream_synchronize(CudaStream stream) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin_unsafe("cudaStreamSynchronize"); status != CudaStatus::kSuccess) {
    return status;
  }
  const Stream* const mine = find_stream(stream);
  if (mine == nullptr) {
    return misuse("cudaStreamSynchronize", "no such stream");
  }
  if (const CudaStatus status = check_no_capture(*mine); status != CudaStatus::kSuccess) {
    return status;
  }
  const CudaStatus status = run_until("cudaStreamSynchronize", [mine] { return mine->pieces.empty(); });
  if (status == CudaStatus::kSuccess) {
    order_.host_waited(order_.recorded(mine->id));
  }
  return status;
}

CudaStatus FakeCuda::stream_query(CudaStream stream) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin_unsafe("cudaStreamQuery"); status != CudaStatus::kSuccess) {
    return status;
  }
  const Stream* const mine = find_stream(stream);
  if (mine == nullptr) {
    return misuse("cudaStreamQuery", "no such stream");
  }
  if (const CudaStatus status = check_no_capture(*mine); status != CudaStatus::kSuccess) {
    return status;
  }
  if (!mine->pieces.empty()) {
    return finish(CudaStatus::kNotReady);
  }
  host_saw(clock_seconds());
  order_.host_waited(order_.recorded(mine->id));
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::stream_id(std::uint64_t& id, CudaStream stream) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin("cudaStreamGetId"); status != CudaStatus::kSuccess) {
    return status;
  }
  const Stream* const mine = find_stream(stream);
  if (mine == nullptr) {
    // CUDA does not specify the error for the handle of a destroyed stream, and drivers have returned each of
    // these two.
    return finish(options_.seed % 2 == 0 ? CudaStatus::kInvalidResourceHandle
                                         : CudaStatus::kContextIsDestroyed);
  }
  id = std::uint64_t{mine->id} + 1;
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::stream_is_capturing(bool& capturing, CudaStream stream) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin("cudaStreamIsCapturing"); status != CudaStatus::kSuccess) {
    return status;
  }
  const Stream* const mine = find_stream(stream);
  if (mine == nullptr) {
    return misuse("cudaStreamIsCapturing", "no such stream");
  }
  const bool is_legacy = mine->is_default && !mine->blocking;
  if (is_legacy && capture_of_blocking(mine->ordinal) != nullptr) {
    return finish(CudaStatus::kStreamCaptureImplicit);  // the capture stays valid
  }
  capturing = mine->place.capture != nullptr;
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::device_synchronize() {
  const CudaStatus status = wait_for_device();
  if (const std::function<void()> other = take(after_next_synchronize_)) {
    other();
  }
  return status;
}

CudaStatus FakeCuda::wait_for_device() {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin_unsafe("cudaDeviceSynchronize"); status != CudaStatus::kSuccess) {
    return status;
  }
  const int ordinal = thread().ordinal;
  const CudaStatus status = check_no_capture(ordinal);
  return status == CudaStatus::kSuccess ? run_all("cudaDeviceSynchronize", ordinal) : status;
}

CudaStatus FakeCuda::finish_work() {
  const std::lock_guard lock(mutex_);
  return run_all("cudaFree", thread().ordinal);
}

CudaStatus FakeCuda::run_all(std::string_view call, int ordinal) {
  const auto is_there = [ordinal](const auto& stream) { return stream->ordinal == ordinal; };
  const CudaStatus status = run_until(call, [&] {
    return std::ranges::all_of(
        streams_, [&](const auto& stream) { return !is_there(stream) || stream->pieces.empty(); });
  });
  for (const auto& stream : streams_) {
    if (status == CudaStatus::kSuccess && is_there(stream)) {
      order_.host_waited(order_.recorded(stream->id));
    }
  }
  return status;
}

CudaStatus FakeCuda::append(std::string_view call, CudaStream stream, Piece piece) {
  Stream* const mine = find_stream(stream);
  if (mine == nullptr) {
    return misuse(call, "no such stream");
  }
  if (mine->ordinal != thread().ordinal && call != "cudaFreeAsync") {
    return misuse(call, "the stream is another GPU's than the thread's");
  }
  if (mine->place.capture) {
    return misuse(call, "cannot be captured");
  }
  if (const CudaStatus status = take_turns(*mine); status != CudaStatus::kSuccess) {
    return status;
  }
  ++mine->given;
  mine->pieces.push_back({.piece = std::move(piece), .seconds = host_submits()});
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::give(std::string_view call, CudaStream stream, Kernel kernel,
                          const FakeAccesses& accesses) {
  Stream* const mine = find_stream(stream);
  if (mine != nullptr && mine->place.capture) {
    return put(*mine, std::move(kernel), accesses);
  }
  const CudaStatus status = append(call, stream, std::move(kernel));
  if (status == CudaStatus::kSuccess) {
    check(mine->ordinal, mine->id, accesses);
  }
  return status;
}

CudaStatus FakeCuda::stream_wait_event(CudaStream stream, CudaEvent event) {
  if (const std::function<void()> other = take(before_next_wait_)) {
    other();
  }
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin("cudaStreamWaitEvent"); status != CudaStatus::kSuccess) {
    return status;
  }
  if (is_lost("cudaStreamWaitEvent")) {
    return CudaStatus::kSuccess;
  }
  const Event* const awaited = find_event(event);
  if (awaited == nullptr) {
    return misuse("cudaStreamWaitEvent", "no such event");
  }
  if (awaited->kind.blocks) {
    dear_events_.emplace("a stream waits for an event that blocks");
  }
  Stream* const mine = find_stream(stream);
  if (mine != nullptr && (mine->place.capture || awaited->place.capture)) {
    return wait_in_capture(*mine, *awaited);
  }
  // The stream waits for the event's present record. An event that was never recorded needs no wait.
  const CudaStatus status = append("cudaStreamWaitEvent", stream, Waiting{awaited->latest});
  if (status == CudaStatus::kSuccess && awaited->latest != nullptr) {
    order_.stream_waits(mine->id, awaited->latest->after);
  }
  return status;
}

CudaStatus FakeCuda::event_create(CudaEvent& event, const CudaEventKind& kind) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin("cudaEventCreateWithFlags"); status != CudaStatus::kSuccess) {
    return status;
  }
  auto made = std::make_unique<Event>();
  made->ordinal = thread().ordinal;
  made->kind = kind;
  event = made.get();
  events_.emplace(event, std::move(made));
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::event_destroy(CudaEvent event) {
  const std::lock_guard lock(mutex_);
  Event* const mine = find_event(event);
  if (const CudaStatus status = begin("cudaEventDestroy", mine); status != CudaStatus::kSuccess) {
    return status;
  }
  if (mine == nullptr) {
    return misuse("cudaEventDestroy", "no such event");
  }
  mine->destroyed = true;
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::event_record(CudaEvent event, CudaStream stream) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin("cudaEventRecord"); status != CudaStatus::kSuccess) {
    return status;
  }
  if (is_lost("cudaEventRecord")) {
    return CudaStatus::kSuccess;
  }
  Event* const mine = find_event(event);
  if (mine == nullptr || mine->ordinal != thread().ordinal) {
    return misuse("cudaEventRecord", "no such event, or another GPU's");
  }
  const Stream* const recorded = find_stream(stream);
  if (recorded != nullptr && recorded->place.capture) {
    return record_in_capture(*recorded, *mine);
  }
  auto recording = std::make_shared<Recording>();
  const CudaStatus status = append("cudaEventRecord", stream, Recorded{recording});
  if (status == CudaStatus::kSuccess) {
    recording->after = order_.recorded(recorded->id);
    mine->latest = std::move(recording);
    mine->place = {};
  }
  return status;
}

CudaStatus FakeCuda::event_query(CudaEvent event) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin_unsafe("cudaEventQuery"); status != CudaStatus::kSuccess) {
    return status;
  }
  const Event* const mine = find_event(event);
  if (mine == nullptr) {
    return misuse("cudaEventQuery", "no such event");
  }
  if (const CudaStatus status = check_not_captured(*mine); status != CudaStatus::kSuccess) {
    return status;
  }
  if (mine->kind.blocks) {
    dear_events_.emplace("the host asks an event that blocks");
  }
  if (mine->latest != nullptr && !mine->latest->done) {
    return finish(CudaStatus::kNotReady);
  }
  know(mine->latest.get());
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::event_synchronize(CudaEvent event) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin_unsafe("cudaEventSynchronize"); status != CudaStatus::kSuccess) {
    return status;
  }
  const Event* const mine = find_event(event);
  if (mine == nullptr) {
    return misuse("cudaEventSynchronize", "no such event");
  }
  if (const CudaStatus status = check_not_captured(*mine); status != CudaStatus::kSuccess) {
    return status;
  }
  const std::shared_ptr<const Recording> awaited = mine->latest;
  if (!mine->kind.blocks) {
    dear_events_.emplace("the host spins until an event is reached");
  }
  const CudaStatus status =
      run_until("cudaEventSynchronize", [&awaited] { return awaited == nullptr || awaited->done; });
  if (status == CudaStatus::kSuccess) {
    know(awaited.get());
  }
  return status;
}

void FakeCuda::know(const Recording* reached) {
  if (reached != nullptr) {
    host_saw(reached->seconds);
    order_.host_waited(reached->after);
  }
}

CudaStatus FakeCuda::event_elapsed_time(float& milliseconds, CudaEvent begin_event, CudaEvent end_event) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin("cudaEventElapsedTime"); status != CudaStatus::kSuccess) {
    return status;
  }
  for (const CudaEvent each : {begin_event, end_event}) {
    const Event* const event = find_event(each);
    if (event == nullptr || !event->kind.timed || event->latest == nullptr) {
      return misuse("cudaEventElapsedTime", "an event that has no time");
    }
    if (!event->latest->done) {
      return finish(CudaStatus::kNotReady);
    }
  }
  milliseconds = std::chrono::duration<float, std::milli>(find_event(end_event)->latest->when -
                                                          find_event(begin_event)->latest->when)
                     .count();
  return CudaStatus::kSuccess;
}

// --- graphs ------------------------------------------------------------------------------------------------

CudaStatus FakeCuda::invalidate(Capture& capture, CudaStatus status) {
  capture.valid = false;
  return finish(status);
}

FakeCuda::Capture* FakeCuda::capture_of_blocking(int ordinal) const {
  const auto found = std::ranges::find_if(streams_, [ordinal](const auto& stream) {
    return stream->blocking && stream->ordinal == ordinal && stream->place.capture;
  });
  return found == streams_.end() ? nullptr : (*found)->place.capture.get();
}

CudaStatus FakeCuda::check_no_capture(const Stream& stream) {
  if (stream.place.capture) {
    return invalidate(*stream.place.capture, CudaStatus::kStreamCaptureUnsupported);
  }
  const bool is_legacy = stream.is_default && !stream.blocking;
  Capture* const encompassed = is_legacy ? capture_of_blocking(stream.ordinal) : nullptr;
  return encompassed == nullptr ? CudaStatus::kSuccess
                                : invalidate(*encompassed, CudaStatus::kStreamCaptureImplicit);
}

CudaStatus FakeCuda::check_no_capture(int ordinal) {
  CudaStatus status = CudaStatus::kSuccess;
  for (const std::shared_ptr<Capture>& capture : captures_) {
    if (std::ranges::any_of(capture->streams,
                            [ordinal](const Stream* stream) { return stream->ordinal == ordinal; })) {
      status = invalidate(*capture, CudaStatus::kStreamCaptureUnsupported);
    }
  }
  return status;
}

CudaStatus FakeCuda::check_not_captured(const Event& event) {
  if (!event.place.capture) {
    return CudaStatus::kSuccess;
  }
  misuses_.emplace_back("an event that was recorded in a capture is asked whether it has been reached");
  return invalidate(*event.place.capture, CudaStatus::kCapturedEvent);
}

CudaStatus FakeCuda::put(Stream& stream, Kernel kernel, const FakeAccesses& accesses) {
  Capture& capture = *stream.place.capture;
  if (!capture.valid) {
    return finish(CudaStatus::kStreamCaptureInvalidated);
  }
  const auto lane = std::ranges::find(capture.streams, &stream);
  const std::size_t node = capture.nodes.size();
  for (const std::size_t before : stream.place.after) {
    capture.nodes[before].before.push_back(node);
  }
  capture.nodes.push_back({.kernel = std::move(kernel),
                           .name = std::string(accesses.name),
                           .reads = {accesses.reads.begin(), accesses.reads.end()},
                           .writes = {accesses.writes.begin(), accesses.writes.end()},
                           .lane = static_cast<std::size_t>(lane - capture.streams.begin()),
                           .after = std::move(stream.place.after),
                           .before = {},
                           .allocates = nullptr,
                           .frees = nullptr});
  stream.place.after = {node};
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::wait_in_capture(Stream& stream, const Event& event) {
  Place& mine = stream.place;
  if (!event.place.capture || (mine.capture && mine.capture != event.place.capture)) {
    return invalidate(*mine.capture, CudaStatus::kStreamCaptureIsolation);
  }
  if (event.place.capture->ended) {
    return misuse("cudaStreamWaitEvent", "the event was recorded in a capture that has ended");
  }
  if (!event.place.capture->valid) {
    return finish(CudaStatus::kStreamCaptureInvalidated);
  }
  if (!mine.capture) {
    mine.capture = event.place.capture;
    mine.capture->streams.push_back(&stream);
  }
  mine.after.insert(event.place.after.begin(), event.place.after.end());
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::record_in_capture(const Stream& stream, Event& event) {
  if (!stream.place.capture->valid) {
    return finish(CudaStatus::kStreamCaptureInvalidated);
  }
  event.place = stream.place;
  event.latest = nullptr;
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::stream_begin_capture(CudaStream stream, CaptureMode mode, CudaGraph into) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin("cudaStreamBeginCapture"); status != CudaStatus::kSuccess) {
    return status;
  }
  Stream* const mine = find_stream(stream);
  if (mine == nullptr || mine->place.capture) {
    return misuse("cudaStreamBeginCapture", "no such stream, or it is being captured");
  }
  if (mine->is_default && !mine->blocking) {
    return finish(CudaStatus::kStreamCaptureUnsupported);
  }
  mine->place.capture = std::make_shared<Capture>();
  mine->place.capture->streams.push_back(mine);
  mine->place.capture->thread = thread_number();
  mine->place.capture->mode = mode;
  if (into != nullptr) {
    mine->place.capture->into = find(graphs_, into);
    mine->place.capture->nodes = mine->place.capture->into->nodes;
  }
  captures_.push_back(mine->place.capture);
  return CudaStatus::kSuccess;
}

bool FakeCuda::is_joined(const Capture& capture) {
  std::set<std::size_t> known = capture.streams.front()->place.after;
  for (std::size_t node = capture.nodes.size(); node-- > 0;) {
    if (known.contains(node)) {
      known.insert(capture.nodes[node].after.begin(), capture.nodes[node].after.end());
    }
  }
  return std::ranges::all_of(capture.streams, [&known](const Stream* stream) {
    return std::ranges::includes(known, stream->place.after);
  });
}

void FakeCuda::end(Capture& capture) {
  capture.ended = true;
  for (const auto& stream : streams_) {
    if (stream->place.capture.get() == &capture) {
      stream->place = {};
    }
  }
  std::erase_if(captures_, [&capture](const auto& each) { return each.get() == &capture; });
}

void FakeCuda::drop_captures() {
  const std::lock_guard lock(mutex_);
  const std::vector<std::shared_ptr<Capture>> all = captures_;
  for (const std::shared_ptr<Capture>& capture : all) {
    if (capture->streams.front()->ordinal == thread().ordinal) {
      end(*capture);
    }
  }
}

CudaStatus FakeCuda::thread_exchange_capture_mode(CaptureMode& mode) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin("cudaThreadExchangeStreamCaptureMode");
      status != CudaStatus::kSuccess) {
    return status;
  }
  std::swap(mode, thread().capture_mode);
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::stream_end_capture(CudaGraph& graph, CudaStream stream) {
  const std::lock_guard lock(mutex_);
  graph = nullptr;
  const Stream* const mine = find_stream(stream);
  const std::shared_ptr<Capture> capture = mine == nullptr ? nullptr : mine->place.capture;
  if (const CudaStatus status = begin("cudaStreamEndCapture"); status != CudaStatus::kSuccess) {
    if (capture) {
      end(*capture);
    }
    return status;
  }
  if (!capture) {
    return misuse("cudaStreamEndCapture", "no such stream, or it is not being captured");
  }
  if (capture->streams.front() != mine) {
    return invalidate(*capture, CudaStatus::kStreamCaptureUnmatched);
  }
  if (capture->thread != thread_number() && capture->mode != CaptureMode::kRelaxed) {
    return finish(CudaStatus::kStreamCaptureWrongThread);
  }
  const bool joined = is_joined(*capture);
  end(*capture);
  if (!capture->valid || !joined) {
    return finish(joined ? CudaStatus::kStreamCaptureInvalidated : CudaStatus::kStreamCaptureUnjoined);
  }
  Graph* made = capture->into;
  if (made == nullptr) {
    made = graphs_.emplace_back(std::make_unique<Graph>()).get();
  }
  made->lanes = std::max(made->lanes, capture->streams.size());
  made->nodes = std::move(capture->nodes);
  graph = made;
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::graph_destroy(CudaGraph graph) {
  const std::lock_guard lock(mutex_);
  Graph* const mine = find(graphs_, graph);
  if (const CudaStatus status = begin("cudaGraphDestroy", mine); status != CudaStatus::kSuccess) {
    return status;
  }
  if (mine == nullptr) {
    return misuse("cudaGraphDestroy", "no such graph");
  }
  mine->destroyed = true;
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::graph_instantiate(CudaExec& exec, CudaGraph graph) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin_unsafe("cudaGraphInstantiate"); status != CudaStatus::kSuccess) {
    return status;
  }
  const Graph* const mine = find(graphs_, graph);
  if (mine == nullptr) {
    return misuse("cudaGraphInstantiate", "no such graph");
  }
  const auto is_another = [mine](const auto& other) { return !other->destroyed && other->graph == mine; };
  if (std::ranges::any_of(mine->nodes, &Node::is_of_memory) && std::ranges::any_of(execs_, is_another)) {
    return misuse("cudaGraphInstantiate", "a graph that allocates or frees memory is instantiated already");
  }
  auto made = std::make_unique<Exec>();
  made->ordinal = thread().ordinal;
  made->graph = mine;
  made->nodes = std::make_shared<const Nodes>(mine->nodes);
  for (std::size_t lane = 0; lane < mine->lanes; ++lane) {
    made->lanes.push_back(order_.add_stream());
  }
  exec = made.get();
  execs_.push_back(std::move(made));
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::graph_exec_destroy(CudaExec exec) {
  const std::lock_guard lock(mutex_);
  Exec* const mine = find(execs_, exec);
  if (const CudaStatus status = begin("cudaGraphExecDestroy", mine); status != CudaStatus::kSuccess) {
    return status;
  }
  if (mine == nullptr) {
    return misuse("cudaGraphExecDestroy", "no such graph");
  }
  mine->destroyed = true;
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::graph_launch(CudaExec exec, CudaStream stream) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin("cudaGraphLaunch"); status != CudaStatus::kSuccess) {
    return status;
  }
  const Exec* const mine = find(execs_, exec);
  if (mine == nullptr || mine->ordinal != thread().ordinal) {
    return misuse("cudaGraphLaunch", "no such graph, or another GPU's");
  }
  if (const CudaStatus status = check_memory(*mine->nodes); status != CudaStatus::kSuccess) {
    return finish(status);
  }
  Launched launched{.nodes = mine->nodes, .awaited = {}, .ready = {}};
  for (std::size_t node = 0; node < mine->nodes->size(); ++node) {
    launched.awaited.push_back((*mine->nodes)[node].after.size());
    if (launched.awaited.back() == 0) {
      launched.ready.push_back(node);
    }
  }
  const CudaStatus status = append("cudaGraphLaunch", stream, std::move(launched));
  if (status == CudaStatus::kSuccess) {
    check(*find_stream(stream), *mine);
  }
  return status;
}

void FakeCuda::check(const Stream& stream, const Exec& exec) {
  const Frontier before = order_.recorded(stream.id);
  std::vector<Frontier> ends;
  for (const Node& node : *exec.nodes) {
    const StreamId lane = exec.lanes[node.lane];
    order_.stream_waits(lane, before);
    for (const std::size_t awaited : node.after) {
      order_.stream_waits(lane, ends[awaited]);
    }
    if (node.allocates != nullptr) {
      begin_life(*node.allocates);
    }
    check(stream.ordinal, lane, node.accesses());
    if (node.frees != nullptr) {
      end_life(*node.frees);
    }
    ends.push_back(order_.recorded(lane));
  }
  for (const StreamId lane : exec.lanes) {
    order_.stream_waits(stream.id, order_.recorded(lane));
  }
}

// --- work of the device -----------------------------------------------------------------------------------

bool FakeCuda::can_run(const Stream& stream) const {
  if (stream.pieces.empty() || corrupted_.contains(stream.ordinal)) {
    return false;
  }
  if (const auto* const held = std::get_if<Held>(&stream.pieces.front().piece)) {
    return held->ready();
  }
  const auto* const waiting = std::get_if<Waiting>(&stream.pieces.front().piece);
  return waiting == nullptr || waiting->recording == nullptr || waiting->recording->done;
}

void FakeCuda::run_node(Launched& launched) {
  std::swap(launched.ready[random_() % launched.ready.size()], launched.ready.back());
  const Node& node = (*launched.nodes)[launched.ready.back()];
  launched.ready.pop_back();
  node.kernel();
  for (const std::size_t next : node.before) {
    if (--launched.awaited[next] == 0) {
      launched.ready.push_back(next);
    }
  }
}

double FakeCuda::host_submits() {
  host_seconds_ += options_.submission_seconds;
  return host_seconds_;
}

void FakeCuda::gpu_waits_until(double seconds) {
  if (options_.clock) {
    *options_.clock = std::max(*options_.clock, seconds);
  }
}

void FakeCuda::run_one(Stream& stream) {
  gpu_waits_until(stream.pieces.front().seconds);
  if (auto* const launched = std::get_if<Launched>(&stream.pieces.front().piece);
      launched != nullptr && !launched->ready.empty()) {
    run_node(*launched);
    return;
  }
  const Piece piece = std::move(stream.pieces.front().piece);
  stream.pieces.pop_front();
  if (const auto* const kernel = std::get_if<Kernel>(&piece)) {
    (*kernel)();
  } else if (const auto* const recorded = std::get_if<Recorded>(&piece)) {
    recorded->recording->when = options_.clock
                                    ? Clock::time_point(std::chrono::duration_cast<Clock::duration>(
                                          std::chrono::duration<double>(*options_.clock)))
                                    : Clock::now();
    recorded->recording->seconds = clock_seconds();
    recorded->recording->done = true;
  }
}

bool FakeCuda::run_some() {
  std::vector<Stream*> ready;
  for (const auto& stream : streams_) {
    if (can_run(*stream)) {
      ready.push_back(stream.get());
    }
  }
  if (ready.empty()) {
    return false;
  }
  run_one(*ready[random_() % ready.size()]);
  return true;
}

void FakeCuda::run_awhile() {
  constexpr std::uint64_t kPaces = 4;
  while (random_() % kPaces < options_.seed % kPaces && run_some()) {
  }
}

bool FakeCuda::others_go_on() {
  if (!options_.while_host_waits) {
    return false;
  }
  mutex_.unlock();
  const bool something_passed = options_.while_host_waits();
  mutex_.lock();
  return something_passed;
}

template <class Predicate>
CudaStatus FakeCuda::run_until(std::string_view call, const Predicate& done) {
  while (corruption() == CudaStatus::kSuccess && !done()) {
    if (!run_some() && !others_go_on()) {
      return misuse(call, "waits for work that never ends");
    }
  }
  host_saw(clock_seconds());
  return finish(corruption());
}

// --- memory ------------------------------------------------------------------------------------------------

CudaStatus FakeCuda::memcpy_async(std::uint64_t destination, std::uint64_t source, std::uint64_t bytes,
                                  CopyDirection direction, CudaStream stream) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin("cudaMemcpyAsync"); status != CudaStatus::kSuccess) {
    return status;
  }
  const Stream* const mine = find_stream(stream);
  const int ordinal = mine == nullptr ? thread().ordinal : mine->ordinal;
  const Access read{.range = {.begin = source, .bytes = bytes}};
  const Access write{.range = {.begin = destination, .bytes = bytes}};
  return give("cudaMemcpyAsync", stream,
              [this, ordinal, destination, source, bytes, direction] {
                copy(ordinal, destination, source, bytes, direction);
              },
              {.name = copy_name_, .reads = {&read, 1}, .writes = {&write, 1}});
}

void FakeCuda::copy(int ordinal, std::uint64_t destination, std::uint64_t source, std::uint64_t bytes,
                    CopyDirection direction) {
  const bool to_host = direction == CopyDirection::kDeviceToHost;
  const AddressRange device{.begin = to_host ? source : destination, .bytes = bytes};
  const AddressRange host{.begin = to_host ? destination : source, .bytes = bytes};
  if (!is_accessible(device, ordinal) && !is_of_graph(device)) {
    misuses_.emplace_back("a copy ran on device memory that is not mapped");
  } else if (!is_registered(host)) {
    misuses_.emplace_back("a copy ran on host memory that is not page-locked");
  } else if (!options_.logical_memory) {
    std::memcpy(pointer_to<void>(destination), pointer_to<void>(source), bytes);
  }
}

void FakeCuda::check(int ordinal, StreamId stream, const FakeAccesses& accesses) {
  for (const std::span<const Access> some : {accesses.reads, accesses.writes}) {
    for (const Access& access : some) {
      const bool is_staged = accesses.is_copy && is_allocated(access.range);
      if (!is_accessible(access.range, ordinal) && !is_registered(access.range) && !is_staged) {
        order_.missing(access.range, accesses.name, "memory that is not there, or no access to it");
      }
    }
  }
  order_.submitted(stream, accesses.name, accesses.reads, accesses.writes);
}

template <class Mappings, class Visitor>
bool FakeCuda::cover(Mappings& mappings, AddressRange range, const Visitor& visit) {
  std::uint64_t at = range.begin;
  auto it = mappings.upper_bound(at);
  if (it != mappings.begin()) {
    --it;
  }
  for (; at < range.end() && it != mappings.end() && it->first <= at; ++it) {
    if (it->first + it->second.bytes > at) {
      visit(it->first, it->second);
      at = it->first + it->second.bytes;
    }
  }
  return at >= range.end();
}

bool FakeCuda::is_accessible(AddressRange range, int ordinal) const {
  bool accessible = true;
  accessible_.visit(range, [&](AddressRange, const std::uint64_t* gpus) {
    accessible = accessible && gpus != nullptr && (*gpus >> static_cast<unsigned>(ordinal) & 1U) != 0;
  });
  return accessible;
}

// True for all addresses that a graph's memory has ever had. Whether the memory existed when work that uses
// it was submitted, check() has judged at that time.
bool FakeCuda::is_of_graph(AddressRange range) const {
  const auto next = graph_memory_.upper_bound(range.begin);
  return next != graph_memory_.begin() && std::prev(next)->second.range.contains(range);
}

bool FakeCuda::is_allocated(AddressRange range) const {
  const auto next = allocated_.upper_bound(range.begin);
  return next != allocated_.begin() && std::prev(next)->second.range.contains(range);
}

bool FakeCuda::is_registered(AddressRange range) const {
  return cover(pinned_, range, [](std::uint64_t, const Registered&) {});
}

void FakeCuda::range_push(const std::string& name) {
  const std::lock_guard lock(mutex_);
  thread().ranges.push_back(name);
}

void FakeCuda::range_pop() {
  const std::lock_guard lock(mutex_);
  if (thread().ranges.empty()) {
    misuses_.emplace_back("nvtxRangePop: no range");
  } else {
    thread().ranges.pop_back();
  }
}

CudaStatus FakeCuda::host_register(AddressRange range) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin_unsafe("cudaHostRegister"); status != CudaStatus::kSuccess) {
    return status;
  }
  Registered made;
  made.bytes = range.bytes;
  const auto next = pinned_.lower_bound(range.end());
  const bool overlaps =
      next != pinned_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > range.begin;
  if (range.bytes == 0 || overlaps) {
    return misuse("cudaHostRegister", "no bytes, or a part of the range is registered already");
  }
  pinned_.emplace(range.begin, made);
  pinned_amount_.add(range.bytes);
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::host_unregister(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto it = pinned_.find(address);
  Owned* const mine = it == pinned_.end() ? nullptr : &it->second;
  if (const CudaStatus status = begin_unsafe("cudaHostUnregister", mine); status != CudaStatus::kSuccess) {
    return status;
  }
  if (mine == nullptr) {
    return misuse("cudaHostUnregister", "not registered");
  }
  order_.host_accesses({.begin = address, .bytes = it->second.bytes}, "cudaHostUnregister");
  pinned_amount_.bytes -= it->second.bytes;
  pinned_.erase(it);
  return CudaStatus::kSuccess;
}

void FakeCuda::allow(AddressRange range, int ordinal) {
  accessible_.update(range, [ordinal](AddressRange, std::uint64_t& gpus) {
    gpus |= std::uint64_t{1} << static_cast<unsigned>(ordinal);
  });
}

CudaStatus FakeCuda::malloc(std::uint64_t& address, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin_unsafe("cudaMalloc"); status != CudaStatus::kSuccess) {
    return status;
  }
  return take(address, bytes, thread().ordinal);
}

CudaStatus FakeCuda::malloc_managed(std::uint64_t& address, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin_unsafe("cudaMallocManaged"); status != CudaStatus::kSuccess) {
    return status;
  }
  const CudaStatus status = take(address, bytes, thread().ordinal);
  for (int gpu = 0; status == CudaStatus::kSuccess && gpu < options_.gpus; ++gpu) {
    allow({.begin = address, .bytes = bytes}, gpu);
  }
  return status;
}

CudaStatus FakeCuda::malloc_async(std::uint64_t& address, std::uint64_t bytes, CudaStream stream) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin("cudaMallocAsync"); status != CudaStatus::kSuccess) {
    return status;
  }
  Stream* const mine = find_stream(stream);
  if (mine == nullptr) {
    return misuse("cudaMallocAsync", "no such stream");
  }
  return mine->place.capture ? malloc_in_capture(address, bytes, *mine) : take(address, bytes, mine->ordinal);
}

CudaStatus FakeCuda::take(std::uint64_t& address, std::uint64_t bytes, int ordinal) {
  if (bytes > free_bytes(ordinal)) {
    return finish(CudaStatus::kMemoryAllocation);
  }
  std::optional<Mapping> space = Mapping::make(options_.malloc_offset + bytes, kMallocAlignment, kind());
  if (!space) {
    return finish(CudaStatus::kMemoryAllocation);
  }
  address = space->range().begin + options_.malloc_offset;
  const AddressRange range{.begin = address, .bytes = bytes};
  taken_[ordinal].add(bytes);
  mapped_amount_.add(bytes);
  allow(range, ordinal);
  for (const auto& [guest, host] : entered_) {
    if (host == ordinal) {
      allow(range, guest);
    }
  }
  allocated_.emplace(address, Allocated(std::move(*space), range, ordinal));
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::free(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto it = allocated_.find(address);
  GraphMemory* const of_graph = find_graph_memory(address);
  Owned* const mine = it == allocated_.end() ? static_cast<Owned*>(of_graph) : &it->second;
  if (const CudaStatus status = begin_unsafe("cudaFree", mine); status != CudaStatus::kSuccess) {
    return status;
  }
  if (of_graph != nullptr && of_graph->live && of_graph->freed_in == nullptr) {
    order_.host_accesses(of_graph->range, "cudaFree");
    end_life(*of_graph);
    return CudaStatus::kSuccess;
  }
  if (it == allocated_.end() || it->second.destroyed) {
    return misuse("cudaFree", "no such memory");
  }
  order_.host_accesses(it->second.range, "cudaFree");
  give_back(address);
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::free_async(std::uint64_t address, CudaStream stream) {
  const std::lock_guard lock(mutex_);
  const auto it = allocated_.find(address);
  GraphMemory* const of_graph = find_graph_memory(address);
  Owned* const mine = it == allocated_.end() ? static_cast<Owned*>(of_graph) : &it->second;
  if (const CudaStatus status = begin("cudaFreeAsync", mine); status != CudaStatus::kSuccess) {
    return status;
  }
  if (Stream* const captured = find_stream(stream); captured != nullptr && captured->place.capture) {
    return free_in_capture(address, *captured);
  }
  if (of_graph != nullptr) {
    return free_of_graph(*of_graph, stream);
  }
  if (mine == nullptr || mine->destroyed) {
    return misuse("cudaFreeAsync", "no such memory");
  }
  const Access write{.range = it->second.range};
  const Kernel end = [this, address] {
    order_.gone(allocated_.at(address).range);
    give_back(address);
  };
  const CudaStatus status =
      give("cudaFreeAsync", stream, end,
           // The stream may be of another GPU, which need not have access to the memory.
           {.name = "cudaFreeAsync", .reads = {}, .writes = {&write, 1}, .is_copy = true});
  mine->destroyed = status == CudaStatus::kSuccess;
  return status;
}

// --- memory of graphs --------------------------------------------------------------------------------------
// CUDA Runtime API: cudaMallocAsync, cudaFreeAsync, cudaGraphAddMemAllocNode, cudaGraphLaunch.

bool FakeCuda::is_graph_memory(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  return graph_memory_.contains(address);
}

FakeCuda::GraphMemory* FakeCuda::find_graph_memory(std::uint64_t address) {
  const auto it = graph_memory_.find(address);
  return it == graph_memory_.end() ? nullptr : &it->second;
}

CudaStatus FakeCuda::malloc_in_capture(std::uint64_t& address, std::uint64_t bytes, Stream& stream) {
  std::optional<Mapping> space = Mapping::make(bytes, kMallocAlignment, kind());
  if (!space) {
    return finish(CudaStatus::kMemoryAllocation);
  }
  if (const CudaStatus status = put(stream, [] {}, {.name = "cudaMallocAsync", .reads = {}, .writes = {}});
      status != CudaStatus::kSuccess) {
    return status;
  }
  Capture& capture = *stream.place.capture;
  const AddressRange range{.begin = space->range().begin, .bytes = bytes};
  GraphMemory& made =
      graph_memory_.emplace(range.begin, GraphMemory(std::move(*space), range, stream.ordinal)).first->second;
  made.allocated_in = &capture;
  capture.nodes.back().allocates = &made;
  address = range.begin;
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::free_in_capture(std::uint64_t address, Stream& stream) {
  GraphMemory* const memory = find_graph_memory(address);
  if (memory == nullptr || memory->freed_in != nullptr) {
    return misuse("cudaFreeAsync",
                  "in a capture, of memory that is no graph's or is freed in a graph already");
  }
  const Access write{.range = memory->range};
  const CudaStatus status = put(stream, [] {}, {.name = "cudaFreeAsync", .reads = {}, .writes = {&write, 1}});
  if (status == CudaStatus::kSuccess) {
    memory->freed_in = stream.place.capture.get();
    stream.place.capture->nodes.back().frees = memory;
  }
  return status;
}

CudaStatus FakeCuda::free_of_graph(GraphMemory& memory, CudaStream stream) {
  if (!memory.live || memory.freed_in != nullptr) {
    return misuse("cudaFreeAsync", "memory of a graph that has not been launched, or that frees it itself");
  }
  const Access write{.range = memory.range};
  const CudaStatus status =
      give("cudaFreeAsync", stream, [] {}, {.name = "cudaFreeAsync", .reads = {}, .writes = {&write, 1}});
  if (status == CudaStatus::kSuccess) {
    end_life(memory);
  }
  return status;
}

CudaStatus FakeCuda::check_memory(const Nodes& nodes) {
  std::uint64_t needed = 0;
  for (const Node& node : nodes) {
    const GraphMemory* const made = node.allocates;
    if (made != nullptr && made->live) {
      return CudaStatus::kInvalidValue;
    }
    needed += made == nullptr ? 0 : made->range.bytes;
    const GraphMemory* const freed = node.frees;
    if (freed != nullptr && freed->allocated_in != freed->freed_in && !freed->live) {
      return CudaStatus::kInvalidValue;
    }
  }
  return needed <= free_bytes(thread().ordinal) ? CudaStatus::kSuccess : CudaStatus::kMemoryAllocation;
}

// The memory's life begins at the call that launches the graph, and ends at the call that frees the memory.
// These moments count because accesses are judged when work is submitted.
void FakeCuda::begin_life(GraphMemory& memory) {
  memory.live = true;
  memory.excused = false;
  allow(memory.range, memory.ordinal);
  taken_[memory.ordinal].add(memory.range.bytes);
  mapped_amount_.add(memory.range.bytes);
}

void FakeCuda::end_life(GraphMemory& memory) {
  memory.live = false;
  accessible_.erase(memory.range);
  taken_[memory.ordinal].bytes -= memory.range.bytes;
  mapped_amount_.bytes -= memory.range.bytes;
}

void FakeCuda::give_back(std::uint64_t address) {
  const auto it = allocated_.find(address);
  const AddressRange range = it->second.range;
  accessible_.erase(range);
  taken_[it->second.ordinal].bytes -= range.bytes;
  mapped_amount_.bytes -= range.bytes;
  allocated_.erase(it);
}

CudaStatus FakeCuda::allocation_granularity(std::uint64_t& bytes, const CudaMemoryKind&) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin("cuMemGetAllocationGranularity"); status != CudaStatus::kSuccess) {
    return status;
  }
  bytes = options_.granule_bytes;
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::address_reserve(std::uint64_t& address, std::uint64_t bytes, std::uint64_t alignment) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin_unsafe("cuMemAddressReserve"); status != CudaStatus::kSuccess) {
    return status;
  }
  if (thread().context == nullptr) {
    return finish(CudaStatus::kInvalidContext);
  }
  if (bytes == 0 || bytes % kPageBytes != 0 || (alignment != 0 && !std::has_single_bit(alignment))) {
    return misuse("cuMemAddressReserve", "not whole pages, or an alignment that is no power of two");
  }
  // With alignment 0, the driver chooses. Either way, whole granules can be mapped from the beginning.
  std::optional<Mapping> space =
      Mapping::make(bytes, std::max(alignment, options_.granule_bytes), Mapping::Kind::kReserved);
  if (!space) {
    return finish(CudaStatus::kMemoryAllocation);
  }
  address = space->range().begin;
  reserved_.emplace(address, Reserved(std::move(*space)));
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::address_free(AddressRange reservation) {
  const std::lock_guard lock(mutex_);
  const auto it = reserved_.find(reservation.begin);
  Owned* const mine = it == reserved_.end() ? nullptr : &it->second;
  if (const CudaStatus status = begin_unsafe("cuMemAddressFree", mine); status != CudaStatus::kSuccess) {
    return status;
  }
  if (mine == nullptr || it->second.space.range() != reservation) {
    return misuse("cuMemAddressFree", "not a reservation");
  }
  if (const auto mapped = mapped_.lower_bound(reservation.begin);
      mapped != mapped_.end() && mapped->first < reservation.end() && !mapped->second.excused) {
    return misuse("cuMemAddressFree", "part of the reservation is mapped");
  }
  reserved_.erase(it);
  return CudaStatus::kSuccess;
}

bool FakeCuda::is_reserved(AddressRange range) const {
  const auto space = reserved_.upper_bound(range.begin);
  return space != reserved_.begin() && std::prev(space)->second.space.range().contains(range);
}

CudaStatus FakeCuda::memory_create(std::uint64_t& handle, std::uint64_t bytes, const CudaMemoryKind& kind) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin_unsafe("cuMemCreate"); status != CudaStatus::kSuccess) {
    return status;
  }
  if (thread().context == nullptr) {
    return finish(CudaStatus::kInvalidContext);
  }
  if (bytes == 0 || bytes % options_.granule_bytes != 0) {
    return misuse("cuMemCreate", "not whole granules");
  }
  if ((kind.file_handles && !options_.file_handles) || (kind.rdma && !options_.rdma)) {
    return finish(CudaStatus::kNotSupported);
  }
  if (bytes > free_bytes(kind.ordinal)) {
    return finish(CudaStatus::kMemoryAllocation);
  }
  const std::optional<std::uint64_t> offset = memory_.take(bytes);
  if (!offset) {
    return finish(CudaStatus::kMemoryAllocation);
  }
  taken_[kind.ordinal].add(bytes);
  Block made;
  made.bytes = bytes;
  made.offset = *offset;
  made.kind = kind;
  blocks_.push_back(std::move(made));
  handle = blocks_.size();
  return CudaStatus::kSuccess;
}

FakeCuda::Block* FakeCuda::find_block(std::uint64_t handle) {
  return handle == 0 || handle > blocks_.size() || blocks_[handle - 1].destroyed ? nullptr
                                                                                 : &blocks_[handle - 1];
}

void FakeCuda::drop_if_unused(const Block& block) {
  if (block.destroyed && block.places.empty()) {
    memory_.give_back(block.offset, block.bytes);
    taken_[block.kind.ordinal].bytes -= block.bytes;
  }
}

void FakeCuda::add_place(Block& block, AddressRange range) {
  if (block.places.empty()) {
    mapped_amount_.add(block.bytes);
  } else if (block.places.size() == 1) {
    order_.share({.begin = *block.places.begin(), .bytes = block.bytes}, block.offset);
  }
  block.places.insert(range.begin);
  if (block.places.size() > 1) {
    order_.share(range, block.offset);
  }
}

void FakeCuda::remove_place(Block& block, AddressRange range) {
  block.places.erase(range.begin);
  order_.unshare(range);
  if (block.places.empty()) {
    mapped_amount_.bytes -= block.bytes;
  } else if (block.places.size() == 1) {
    order_.unshare({.begin = *block.places.begin(), .bytes = block.bytes});
    order_.end_sharing(block.offset, block.bytes);
  }
  drop_if_unused(block);
}

CudaStatus FakeCuda::memory_release(std::uint64_t handle) {
  const std::lock_guard lock(mutex_);
  Block* const mine = find_block(handle);
  if (const CudaStatus status = begin_unsafe("cuMemRelease", mine); status != CudaStatus::kSuccess) {
    return status;
  }
  if (mine == nullptr) {
    return misuse("cuMemRelease", "no such memory");
  }
  mine->destroyed = true;
  drop_if_unused(*mine);
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::memory_map(AddressRange range, std::uint64_t handle) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin_unsafe("cuMemMap"); status != CudaStatus::kSuccess) {
    return status;
  }
  Block* const block = find_block(handle);
  if (block == nullptr || block->bytes != range.bytes) {
    return misuse("cuMemMap", "no such memory, or not its size");
  }
  if (!is_reserved(range) || range.begin % options_.granule_bytes != 0) {
    return misuse("cuMemMap", "not inside a reservation, or within a granule");
  }
  bool any = false;
  cover(mapped_, range, [&any](std::uint64_t, const Mapped&) { any = true; });
  const auto next = mapped_.lower_bound(range.begin);
  if (any || (next != mapped_.end() && next->first < range.end())) {
    return misuse("cuMemMap", "mapped already");
  }
  if (!memory_.map(range, block->offset)) {
    return finish(CudaStatus::kMemoryAllocation);
  }
  Mapped made;
  made.bytes = range.bytes;
  made.handle = handle;
  mapped_.emplace(range.begin, made);
  add_place(*block, range);
  return CudaStatus::kSuccess;
}

CudaStatus FakeCuda::export_allocation(AddressRange& mapped, std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin("cuMemExportToShareableHandle"); status != CudaStatus::kSuccess) {
    return status;
  }
  const auto next = mapped_.upper_bound(address);
  if (next == mapped_.begin() || address - std::prev(next)->first >= std::prev(next)->second.bytes) {
    return finish(CudaStatus::kInvalidValue);
  }
  const auto& [begin, found] = *std::prev(next);
  mapped = {.begin = begin, .bytes = found.bytes};
  return blocks_[found.handle - 1].kind.file_handles ? CudaStatus::kSuccess
                                                     : finish(CudaStatus::kInvalidValue);
}

CudaStatus FakeCuda::register_for_rdma(AddressRange range) const {
  const std::lock_guard lock(mutex_);
  bool can = true;
  const bool covered = cover(mapped_, range, [&](std::uint64_t, const Mapped& mapped) {
    can = can && blocks_[mapped.handle - 1].kind.rdma;
  });
  return can && covered ? CudaStatus::kSuccess : CudaStatus::kInvalidValue;
}

CudaStatus FakeCuda::memory_set_access(AddressRange range, std::span<const int> ordinals) {
  const std::lock_guard lock(mutex_);
  if (const CudaStatus status = begin_unsafe("cuMemSetAccess"); status != CudaStatus::kSuccess) {
    return status;
  }
  bool are_whole = true;
  if (!cover(mapped_, range, [&](std::uint64_t begin, const Mapped& mapped) {
        are_whole = are_whole && begin >= range.begin && begin + mapped.bytes <= range.end();
      })) {
    return misuse("cuMemSetAccess", "a part of the range is not mapped");
  }
  if (!are_whole) {
    return misuse("cuMemSetAccess", "only a part of an allocation");
  }
  for (const int ordinal : ordinals) {
    if (ordinal < 0 || ordinal >= options_.gpus) {
      return finish(CudaStatus::kInvalidDevice);
    }
    if (!can_reach(range, ordinal)) {
      return misuse("cuMemSetAccess", "the GPU cannot access memory of the GPU that owns it");
    }
  }
  for (const int ordinal : ordinals) {
    allow(range, ordinal);
  }
  memory_.open(range);
  return CudaStatus::kSuccess;
}

// Whether a GPU can access the virtual memory there, as its own or as a peer's.
bool FakeCuda::can_reach(AddressRange range, int ordinal) const {
  bool can = true;
  cover(mapped_, range, [&](std::uint64_t, const Mapped& mapped) {
    can = can && (options_.peers || blocks_[mapped.handle - 1].kind.ordinal == ordinal);
  });
  return can;
}

CudaStatus FakeCuda::memory_unmap(AddressRange range) {
  const std::lock_guard lock(mutex_);
  const auto it = mapped_.find(range.begin);
  Owned* const mine = it == mapped_.end() ? nullptr : &it->second;
  if (const CudaStatus status = begin_unsafe("cuMemUnmap", mine); status != CudaStatus::kSuccess) {
    return status;
  }
  if (mine == nullptr || it->second.bytes != range.bytes) {
    return misuse("cuMemUnmap", "not a whole mapping");
  }
  order_.host_accesses(range, "cuMemUnmap");
  accessible_.erase(range);
  memory_.unmap(range);
  remove_place(blocks_[it->second.handle - 1], range);
  mapped_.erase(it);
  return CudaStatus::kSuccess;
}

}  // namespace vdnn
