#include "vdnn/tensor_stash.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "src/stash/host_blocks.h"
#include "src/stash/known_steps.h"
#include "src/stash/stash_event.h"
#include "src/stash/stash_notices.h"
#include "streams/host_memory.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

using stash::HostBlocks;
using stash::KnownStep;
using stash::KnownSteps;
using stash::StashEvent;
using stash::StashNotices;
using stash::StepEvent;
using stash::StepLimits;
using stash::StepRecord;
using stash::StepTensor;

using Clock = std::chrono::steady_clock;

// A step that saves more has no end that we see, as where a program keeps its graphs.
constexpr std::size_t kMostTensors = std::size_t{1} << 16;

struct HashOfIdentity {
  std::size_t operator()(const StashIdentity& identity) const {
    constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio
    return std::hash<std::uint64_t>()((identity.storage * kOdd) ^ identity.version);
  }
};

enum class Where : std::uint8_t {
  kKept,      // on the device
  kInFlight,  // likewise, and being copied out
  kAway,      // on the host alone
  kFetched,   // and in a target
};

// A storage at one version, for as long as a handle of it is alive.
struct Entry {
  SavedTensor tensor;
  std::uint64_t step = 0;     // serial number
  std::uint32_t index = 0;    // in the step
  std::uint64_t users = 1;    // puts that were not dropped
  std::uint64_t unread = 1;   // of them, in the current pass
  std::uint64_t reads = 0;    // ever
  std::uint64_t sent_at = 0;  // what had been saved before it, when its copy began
  Where where = Where::kKept;
  bool is_counted_away = false;  // its bytes are in away_bytes_
  bool is_named = false;         // fetches() has named it, and it was not fetched since
  bool is_missing = false;       // a reader waits for its fetch
  bool is_ahead = false;         // its bytes are in ahead_bytes_
  bool ends_with_ready = false;  // the reader that waits is the last of its pass
  HostBlocks::Lease block;
  StashEvent out;
  StashEvent in;  // of the last fetch
  std::uint64_t target = 0;
  StreamHandle target_stream = nullptr;
  bool has_target_joined = false;  // target_stream comes after the fetch

  std::uint64_t bytes() const { return tensor.source.bytes; }
  // Whether it may be fetched ahead of this read: it is away, nobody is fetching it, and this read is to
  // come.
  bool may_come_back_for(const stash::ScheduledRead& read) const {
    return where == Where::kAway && !is_missing && !is_named && reads <= read.earlier;
  }
};

// The step that is under way.
struct Step {
  std::uint64_t serial = 0;
  StepRecord record;
  std::vector<StashHandle> handles = {};  // by tensor
  Clock::time_point begin;
  const KnownStep* kind = nullptr;  // it has gone like that one so far
  std::uint64_t live = 0;           // handles
  std::size_t first_kept = 0;       // no tensor before it is kept
  std::size_t next_offer = 0;       // all before it are not kept, or have been named since the last put
  std::size_t reads = 0;            // that were recorded
  std::size_t next_ahead = 0;       // in kind->plan.reads
  std::uint64_t late = 0;
  std::uint64_t peak_bytes = 0;  // in use, as told
  // Of its tensors.
  std::uint64_t largest = 0;
  std::uint64_t second_largest = 0;
  std::uint64_t page_locks_before = 0;
};

std::uint64_t default_host_bytes() {
  constexpr std::uint64_t kShare = 2;
  return std::min(host_memory_bytes(), cgroup_memory_limit().value_or(host_memory_bytes())) / kShare;
}

// One more push_back() takes no memory.
template <class T>
void make_room(std::vector<T>& vector) {
  constexpr std::size_t kFirst = 16;
  if (vector.size() == vector.capacity()) {
    vector.reserve(std::max(kFirst, 2 * vector.size()));
  }
}

}  // namespace

class TensorStash::Impl {
 public:
  Impl(std::unique_ptr<StashBackend> backend, const StashOptions& options)
      : backend_(std::move(backend)),
        options_(options),
        host_(*backend_, options.host_bytes == 0 ? default_host_bytes() : options.host_bytes) {}
  ~Impl() {
    for (auto& [handle, entry] : entries_) {
      if (!entry.block.empty()) {
        host_.give(std::move(entry.block), std::move(entry.out));
      }
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  PutAnswer put(const SavedTensor& tensor, std::uint64_t in_use_bytes);
  std::vector<StashHandle> leaving(std::size_t capacity);
  PutAnswer leave(StashHandle handle, StreamHandle stream);
  void stay(StashHandle handle);
  std::vector<StashHandle> released(StreamHandle stream, std::size_t capacity);
  ReadAnswer read(StashHandle handle, StreamHandle stream, std::uint64_t in_use_bytes, bool held);
  std::vector<DueFetch> fetches(StashHandle reading, std::size_t capacity);
  void fetch(StashHandle handle, std::uint64_t target, StreamHandle stream);
  void ready(StashHandle handle, StreamHandle stream);
  void drop(StashHandle handle);
  void end_step();
  void forget();
  std::string take_notice(std::size_t capacity);
  StashStatistics statistics() const;
  std::string learned_step() const;
  const StashBackend& backend() const { return *backend_; }

 private:
  Entry& find(StashHandle handle);
  PutAnswer share(StashHandle handle);
  PutAnswer answer(StashHandle handle);
  void put_new(StashHandle handle, Entry& entry, const SavedTensor& tensor, std::uint64_t told_bytes);
  void follow(const KnownStep* kind);
  bool should_leave(const KnownStep* kind, std::size_t index) const;
  HostBlocks::Lease lease_for(std::uint64_t bytes, StreamHandle stream);
  void send_out(StashHandle handle, Entry& entry, StreamHandle stream);
  void copy_out(Entry& entry, StreamHandle stream);
  void note_released(Entry& entry);
  void note_read(Entry& entry, std::uint64_t told_bytes, bool held);
  void copy_in(Entry& entry, std::uint64_t target, StreamHandle stream);
  void let_go_of_target(Entry& entry);
  void order_release_on_producer(const Entry& entry, StreamHandle releasing);
  void order_releases(const Entry& entry);
  void order_release(StreamHandle stream, const StashEvent& copy);
  void forget_entry(StashHandle handle, Entry& entry) noexcept;
  void begin_step();
  void finish_step();
  void note_budget(std::uint64_t needed_bytes);
  void reserve_for(const KnownStep& kind);

  void order_after(StreamHandle waiter, StreamHandle stream);
  void wait_for_fetch(Entry& entry, StreamHandle stream);
  void count_away(Entry& entry, bool away);
  void count_ahead(Entry& entry, bool ahead);
  void record_event(StepEvent::Kind kind, std::uint32_t tensor, std::uint64_t with_all_bytes);
  void mark_staying(const Entry& entry);
  void note_in_use(std::uint64_t bytes);

  // The bound on bytes that are on their way out. The plan sets it; a step without one takes its saves so
  // far.
  std::uint64_t flight_limit() const {
    return step_.kind != nullptr ? step_.kind->plan.flight_bytes
                                 : flight_option(step_.largest + step_.second_largest);
  }
  std::uint64_t flight_option(std::uint64_t two_largest) const {
    return options_.release_at_put ? 0 : options_.flight_bytes.value_or(two_largest);
  }
  StepLimits limits_of(const StepRecord& step) const {
    const std::uint64_t two_largest = two_largest_bytes(step);
    return {.budget_bytes = options_.budget_bytes,
            .ahead_bytes = options_.ahead_bytes.value_or(two_largest),
            .flight_bytes = flight_option(two_largest)};
  }
  // How many bytes have to leave beyond those that are leaving and those that have been named.
  std::uint64_t excess(std::uint64_t named_bytes = 0) const;
  bool is_in_step(const Entry& entry) const { return entry.step == step_.serial; }
  // Kept, and not offered; nothing: no tensor of the step is so.
  std::optional<StashHandle> next_offer();
  // The tensor to be fetched ahead next while `reading` is read; nothing: there is none now, or it does not
  // fit beside `listed` bytes.
  std::optional<StashHandle> next_ahead(StashHandle reading, std::uint64_t listed);
  bool has_released() const {
    return !flight_.empty() && is_due(entries_.at(flight_.front()), flight_bytes_);
  }
  // Whether the oldest copy, one of `flight_bytes`, is to be released. What is saved after it counts whether
  // it leaves or not, so that the end of a forward pass releases copies of its middle.
  bool is_due(const Entry& oldest, std::uint64_t flight_bytes) const {
    return flight_bytes > flight_limit() || saved_bytes_ - oldest.sent_at > flight_limit();
  }

  const std::unique_ptr<StashBackend> backend_;
  const StashOptions options_;
  mutable std::mutex mutex_;  // guards what follows
  HostBlocks host_;
  std::unordered_map<StashHandle, Entry> entries_;
  std::unordered_map<StashIdentity, StashHandle, HashOfIdentity> by_contents_;
  StashHandle last_handle_ = 0;
  std::deque<StashHandle> flight_;  // the oldest copy first
  std::uint64_t flight_bytes_ = 0;
  std::uint64_t saved_bytes_ = 0;  // ever
  std::uint64_t live_bytes_ = 0;
  std::uint64_t away_bytes_ = 0;    // of live tensors, those that take nothing on the device
  std::uint64_t ahead_bytes_ = 0;   // fetched ahead and not read
  std::uint64_t in_use_bytes_ = 0;  // at the last put or read
  std::uint64_t peak_bytes_ = 0;
  Step step_;
  KnownSteps known_;
  StashNotices notices_;
  StashStatistics statistics_;
};

// --- small things ------------------------------------------------------------------------------------------

Entry& TensorStash::Impl::find(StashHandle handle) {
  const auto found = entries_.find(handle);
  if (found == entries_.end()) {
    throw InvalidArgument(backend_->name() + ": the stash has no handle " + std::to_string(handle));
  }
  return found->second;
}

void TensorStash::Impl::order_after(StreamHandle waiter, StreamHandle stream) {
  const StashEvent now = stash::record(*backend_, stream);
  backend_->wait(waiter, now.get());
}

void TensorStash::Impl::wait_for_fetch(Entry& entry, StreamHandle stream) {
  backend_->wait(stream, entry.in.get());
  entry.has_target_joined = entry.has_target_joined || stream == entry.target_stream;
}

void TensorStash::Impl::count_away(Entry& entry, bool away) {
  if (entry.is_counted_away != away) {
    entry.is_counted_away = away;
    away_bytes_ = away ? away_bytes_ + entry.bytes() : away_bytes_ - entry.bytes();
  }
}

void TensorStash::Impl::count_ahead(Entry& entry, bool ahead) {
  if (entry.is_ahead != ahead) {
    entry.is_ahead = ahead;
    ahead_bytes_ = ahead ? ahead_bytes_ + entry.bytes() : ahead_bytes_ - entry.bytes();
  }
}

void TensorStash::Impl::record_event(StepEvent::Kind kind, std::uint32_t tensor,
                                     std::uint64_t with_all_bytes) {
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - step_.begin);
  step_.record.events.push_back({.kind = kind,
                                 .tensor = tensor,
                                 .in_use_bytes = with_all_bytes,
                                 .nanoseconds = static_cast<std::uint64_t>(since.count())});
}

void TensorStash::Impl::note_in_use(std::uint64_t bytes) {
  in_use_bytes_ = bytes;
  peak_bytes_ = std::max(peak_bytes_, bytes);
  step_.peak_bytes = std::max(step_.peak_bytes, bytes);
}

void TensorStash::Impl::mark_staying(const Entry& entry) {
  if (is_in_step(entry)) {
    step_.record.tensors[entry.index].stays = true;
  }
}

// --- saving ------------------------------------------------------------------------------------------------

PutAnswer TensorStash::Impl::put(const SavedTensor& tensor, std::uint64_t in_use_bytes) {
  if (tensor.source.bytes == 0) {
    throw InvalidArgument(backend_->name() + ": a saved tensor has no bytes");
  }
  const std::lock_guard lock(mutex_);
  if (const auto shared = by_contents_.find(tensor.contents); shared != by_contents_.end()) {
    return share(shared->second);
  }
  if (step_.record.tensors.size() == kMostTensors) {
    finish_step();
  }
  if (step_.record.tensors.empty()) {
    begin_step();
  }
  const StashHandle handle = last_handle_ + 1;
  make_room(step_.record.tensors);
  make_room(step_.record.events);
  make_room(step_.handles);
  try {
    by_contents_.emplace(tensor.contents, handle);
    put_new(handle, entries_[handle], tensor, in_use_bytes);
  } catch (...) {
    entries_.erase(handle);
    by_contents_.erase(tensor.contents);
    throw;
  }
  last_handle_ = handle;
  return answer(handle);
}

PutAnswer TensorStash::Impl::answer(StashHandle handle) {
  const bool leaves = entries_.at(handle).where != Where::kKept;
  return {.handle = handle,
          .verdict = leaves ? StashVerdict::kLeaves : StashVerdict::kKept,
          .has_released = has_released(),
          .has_leaving = excess() > 0 && next_offer(),
          .has_notice = notices_.is_pending()};
}

PutAnswer TensorStash::Impl::share(StashHandle handle) {
  Entry& entry = entries_.at(handle);
  ++entry.users;
  ++entry.unread;
  ++statistics_.puts;
  ++statistics_.shared;
  return {.handle = handle, .verdict = StashVerdict::kShared, .has_released = has_released()};
}

// Nothing that can fail comes after the first change.
void TensorStash::Impl::put_new(StashHandle handle, Entry& entry, const SavedTensor& tensor,
                                std::uint64_t told_bytes) {
  entry.tensor = tensor;
  entry.step = step_.serial;
  entry.index = static_cast<std::uint32_t>(step_.handles.size());
  const StepTensor known_by{.bytes = entry.bytes(), .signature = tensor.signature};
  const KnownStep* const kind = known_.find(step_.kind, step_.record.tensors, known_by);
  note_in_use(told_bytes == 0 ? live_bytes_ - away_bytes_ + entry.bytes() : told_bytes);
  const std::uint64_t with_all = in_use_bytes_ + away_bytes_;
  saved_bytes_ += entry.bytes();
  if (should_leave(kind, entry.index)) {
    send_out(handle, entry, tensor.stream);
  }
  follow(kind);
  step_.record.tensors.push_back(known_by);
  step_.handles.push_back(handle);
  step_.next_offer = step_.first_kept;
  record_event(StepEvent::Kind::kSave, entry.index, with_all);
  ++step_.live;
  ++statistics_.puts;
  live_bytes_ += entry.bytes();
  step_.second_largest = std::max(step_.second_largest, std::min(step_.largest, entry.bytes()));
  step_.largest = std::max(step_.largest, entry.bytes());
}

void TensorStash::Impl::follow(const KnownStep* kind) {
  if (step_.kind == kind) {
    return;
  }
  if (kind == nullptr) {
    ++statistics_.diverged_steps;
  }
  step_.kind = kind;
  step_.next_ahead = step_.reads;
}

bool TensorStash::Impl::should_leave(const KnownStep* kind, std::size_t index) const {
  return kind != nullptr ? kind->plan.leaves[index] : options_.budget_bytes == 0;
}

// Empty where nothing can be copied since the stream is captured, or the host has no memory for it.
HostBlocks::Lease TensorStash::Impl::lease_for(std::uint64_t bytes, StreamHandle stream) {
  if (backend_->is_capturing(stream)) {
    return {};
  }
  HostBlocks::Lease lease = host_.take(bytes);
  if (lease.empty()) {
    notices_.note_host_exhausted(bytes);
  }
  return lease;
}

// Without a block of host memory it stays.
void TensorStash::Impl::send_out(StashHandle handle, Entry& entry, StreamHandle stream) {
  flight_.push_back(handle);
  try {
    entry.block = lease_for(entry.bytes(), stream);
    if (!entry.block.empty()) {
      copy_out(entry, stream);
    }
  } catch (...) {
    flight_.pop_back();
    throw;
  }
  if (entry.block.empty()) {
    flight_.pop_back();
    ++statistics_.refused;
    return;
  }
  entry.where = Where::kInFlight;
  entry.sent_at = saved_bytes_ - entry.bytes();
  flight_bytes_ += entry.bytes();
  ++statistics_.left;
  statistics_.out_bytes += entry.bytes();
  if (options_.release_at_put) {
    flight_.pop_back();
    note_released(entry);
  }
}

void TensorStash::Impl::copy_out(Entry& entry, StreamHandle stream) {
  const StreamHandle offload = backend_->offload_stream();
  const stash::HostBlock& block = entry.block.front();
  try {
    order_after(offload, stream);
    if (block.last_use) {
      backend_->wait(offload, block.last_use.get());
    }
    backend_->copy_out(block.range, entry.tensor.source, entry.tensor.contents);
  } catch (...) {
    host_.give(std::move(entry.block), {});
    throw;
  }
  try {
    entry.out = stash::record(*backend_, offload);
  } catch (...) {
    host_.give_unordered(std::move(entry.block));
    throw;
  }
}

void TensorStash::Impl::note_released(Entry& entry) {
  flight_bytes_ -= entry.bytes();
  entry.where = Where::kAway;
  count_away(entry, true);
}

// --- leaving later -----------------------------------------------------------------------------------------

std::uint64_t TensorStash::Impl::excess(std::uint64_t named_bytes) const {
  if (step_.kind != nullptr || options_.budget_bytes == 0) {
    return 0;  // a plan decides, or all has left
  }
  // What leaves is there until its copy is released; what is read late comes back one at a time.
  const std::uint64_t wanted = in_use_bytes_ + flight_limit() + step_.largest;
  const std::uint64_t allowed = options_.budget_bytes + flight_bytes_ + named_bytes;
  return wanted > allowed ? wanted - allowed : 0;
}

std::optional<StashHandle> TensorStash::Impl::next_offer() {
  const auto is_kept = [this](std::size_t tensor) {
    const auto found = entries_.find(step_.handles[tensor]);
    return found != entries_.end() && found->second.where == Where::kKept;
  };
  while (step_.first_kept < step_.handles.size() && !is_kept(step_.first_kept)) {
    ++step_.first_kept;
  }
  step_.next_offer = std::max(step_.next_offer, step_.first_kept);
  while (step_.next_offer < step_.handles.size() && !is_kept(step_.next_offer)) {
    ++step_.next_offer;
  }
  return step_.next_offer < step_.handles.size() ? std::optional(step_.handles[step_.next_offer])
                                                 : std::nullopt;
}

std::vector<StashHandle> TensorStash::Impl::leaving(std::size_t capacity) {
  const std::lock_guard lock(mutex_);
  std::vector<StashHandle> handles;
  handles.reserve(std::min(capacity, step_.handles.size()));
  std::uint64_t named_bytes = 0;
  while (handles.size() < capacity && excess(named_bytes) > 0) {
    const std::optional<StashHandle> next = next_offer();
    if (!next) {
      break;
    }
    handles.push_back(*next);
    named_bytes += entries_.at(*next).bytes();
    ++step_.next_offer;
  }
  return handles;
}

PutAnswer TensorStash::Impl::leave(StashHandle handle, StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  Entry& entry = find(handle);
  if (entry.where == Where::kKept) {
    send_out(handle, entry, stream);
  }
  return answer(handle);
}

void TensorStash::Impl::stay(StashHandle handle) {
  const std::lock_guard lock(mutex_);
  const Entry& entry = find(handle);
  if (is_in_step(entry)) {
    step_.record.tensors[entry.index].held_until = step_.record.events.size();
  }
}

// The caller's allocator may reuse a source in the order of the stream that it was put with.
void TensorStash::Impl::order_release_on_producer(const Entry& entry, StreamHandle releasing) {
  if (entry.tensor.stream != releasing) {
    backend_->wait(entry.tensor.stream, entry.out.get());
  }
}

// Copies end in the order of their beginnings: to come after one is to come after those before it.
std::vector<StashHandle> TensorStash::Impl::released(StreamHandle stream, std::size_t capacity) {
  const std::lock_guard lock(mutex_);
  std::vector<StashHandle> handles;
  std::uint64_t bytes = flight_bytes_;
  for (auto it = flight_.begin();
       handles.size() < capacity && it != flight_.end() && is_due(entries_.at(*it), bytes); ++it) {
    handles.push_back(*it);
    bytes -= entries_.at(*it).bytes();
  }
  if (handles.empty()) {
    return handles;
  }
  backend_->wait(stream, entries_.at(handles.back()).out.get());
  for (const StashHandle handle : handles) {
    order_release_on_producer(entries_.at(handle), stream);
  }
  for (const StashHandle handle : handles) {
    flight_.pop_front();
    note_released(entries_.at(handle));
  }
  return handles;
}

// --- reading -----------------------------------------------------------------------------------------------

ReadAnswer TensorStash::Impl::read(StashHandle handle, StreamHandle stream, std::uint64_t told_bytes,
                                   bool held) {
  const std::lock_guard lock(mutex_);
  Entry& entry = find(handle);
  make_room(step_.record.events);
  const bool is_last = entry.unread <= 1;
  ReadAnswer answer;
  if (entry.where == Where::kFetched) {
    wait_for_fetch(entry, stream);
    answer = {.place = StashPlace::kBack, .last = is_last};
  } else if (entry.where == Where::kAway && !held) {
    answer = {.place = StashPlace::kMissing, .last = is_last};
    entry.is_missing = true;
    entry.ends_with_ready = is_last;
  }
  if (answer.place == StashPlace::kBack && is_last) {
    let_go_of_target(entry);
  }
  note_read(entry, told_bytes, held);
  answer.has_fetches = answer.place == StashPlace::kMissing || next_ahead(handle, 0).has_value();
  return answer;
}

void TensorStash::Impl::note_read(Entry& entry, std::uint64_t told_bytes, bool held) {
  note_in_use(told_bytes == 0 ? live_bytes_ - away_bytes_ : told_bytes);
  count_ahead(entry, false);
  ++entry.reads;
  entry.unread = entry.unread <= 1 ? entry.users : entry.unread - 1;
  if (held) {
    mark_staying(entry);
  }
  if (is_in_step(entry)) {
    record_event(StepEvent::Kind::kRead, entry.index, in_use_bytes_ + away_bytes_);
    ++step_.reads;
  }
}

std::optional<StashHandle> TensorStash::Impl::next_ahead(StashHandle reading, std::uint64_t listed) {
  if (step_.kind == nullptr) {
    return std::nullopt;
  }
  const stash::StepPlan& plan = step_.kind->plan;
  step_.next_ahead = std::max(step_.next_ahead, step_.reads);
  for (; step_.next_ahead < plan.reads.size(); ++step_.next_ahead) {
    const stash::ScheduledRead& read = plan.reads[step_.next_ahead];
    if (read.fetch_after > step_.reads || read.tensor >= step_.handles.size()) {
      return std::nullopt;  // too early, or not saved yet
    }
    const auto found = entries_.find(step_.handles[read.tensor]);
    if (found == entries_.end() || !found->second.may_come_back_for(read)) {
      continue;
    }
    const std::uint64_t ahead = ahead_bytes_ + listed;
    const bool fits = ahead == 0 || ahead + found->second.bytes() <= plan.ahead_bytes;
    // The caller still holds the target of what it reads.
    return fits && found->first != reading ? std::optional(found->first) : std::nullopt;
  }
  return std::nullopt;
}

std::vector<DueFetch> TensorStash::Impl::fetches(StashHandle reading, std::size_t capacity) {
  const std::lock_guard lock(mutex_);
  const Entry& entry = find(reading);
  std::vector<DueFetch> due;
  if (entry.is_missing && entry.where == Where::kAway && capacity > 0) {
    due.push_back({.handle = reading, .bytes = entry.bytes()});
  }
  std::uint64_t listed = 0;
  while (due.size() < capacity) {
    const std::optional<StashHandle> next = next_ahead(reading, listed);
    if (!next) {
      break;
    }
    due.push_back({.handle = *next, .bytes = entries_.at(*next).bytes()});
    listed += due.back().bytes;
    entries_.at(*next).is_named = true;
    ++step_.next_ahead;
  }
  return due;
}

void TensorStash::Impl::fetch(StashHandle handle, std::uint64_t target, StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  Entry& entry = find(handle);
  if (entry.where != Where::kAway) {
    throw InvalidArgument(backend_->name() + ": the tensor of handle " + std::to_string(handle) +
                          " is on the device");
  }
  if (backend_->is_capturing(stream)) {
    throw CaptureConflict(backend_->name() + ": nothing can be fetched for a stream that is being captured");
  }
  copy_in(entry, target, stream);
  entry.where = Where::kFetched;
  entry.is_named = false;
  entry.target_stream = stream;
  entry.has_target_joined = false;
  statistics_.in_bytes += entry.bytes();
  count_away(entry, false);
  if (entry.is_missing) {
    ++statistics_.fetched_late;
    ++step_.late;
  } else {
    ++statistics_.fetched_ahead;
    count_ahead(entry, true);
  }
}

void TensorStash::Impl::copy_in(Entry& entry, std::uint64_t target, StreamHandle stream) {
  const StreamHandle prefetch = backend_->prefetch_stream();
  const AddressRange to{.begin = target, .bytes = entry.bytes()};
  order_after(prefetch, stream);
  backend_->wait(prefetch, entry.out.get());
  backend_->copy_in(to, entry.block.front().range, entry.tensor.contents);
  try {
    entry.in = stash::record(*backend_, prefetch);
  } catch (...) {
    // Without an event nothing can come after the copy but the host; where it cannot either, the device
    // fails.
    backend_->synchronize_copies();
    throw;
  }
}

void TensorStash::Impl::ready(StashHandle handle, StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  Entry& entry = find(handle);
  if (entry.where != Where::kFetched) {
    throw InvalidArgument(backend_->name() + ": the tensor of handle " + std::to_string(handle) +
                          " has not been fetched");
  }
  wait_for_fetch(entry, stream);
  entry.is_missing = false;
  if (std::exchange(entry.ends_with_ready, false)) {
    let_go_of_target(entry);
  }
}

// The caller may free it in the order of its stream, which need not be the reader's.
void TensorStash::Impl::let_go_of_target(Entry& entry) {
  if (!entry.has_target_joined) {
    wait_for_fetch(entry, entry.target_stream);
  }
  entry.where = Where::kAway;
}

// --- ends --------------------------------------------------------------------------------------------------

void TensorStash::Impl::drop(StashHandle handle) {
  const std::lock_guard lock(mutex_);
  Entry& entry = find(handle);
  if (--entry.users > 0) {
    entry.unread = std::min(entry.unread, entry.users);
    return;
  }
  const auto node = entries_.extract(handle);
  std::exception_ptr failure;
  const auto attempt = [&failure](const auto& part) {
    try {
      part();
    } catch (...) {
      failure = std::current_exception();
    }
  };
  attempt([&] { order_releases(entry); });
  forget_entry(handle, entry);
  if (is_in_step(entry)) {
    step_.record.tensors[entry.index].dropped_after = step_.record.events.size();
    if (--step_.live == 0) {
      attempt([&] { finish_step(); });
    }
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
}

// What the caller still holds it frees in the order of the streams that it was given with.
void TensorStash::Impl::order_releases(const Entry& entry) {
  if (entry.where == Where::kInFlight) {
    order_release(entry.tensor.stream, entry.out);
  }
  if (entry.where == Where::kFetched && !entry.has_target_joined) {
    order_release(entry.target_stream, entry.in);
  }
}

void TensorStash::Impl::order_release(StreamHandle stream, const StashEvent& copy) {
  try {
    backend_->wait(stream, copy.get());
  } catch (...) {
    backend_->synchronize(copy.get());  // the host comes after it, and so does what it submits next
    throw;
  }
}

void TensorStash::Impl::forget_entry(StashHandle handle, Entry& entry) noexcept {
  by_contents_.erase(entry.tensor.contents);
  if (entry.where == Where::kInFlight) {
    flight_.erase(std::ranges::find(flight_, handle));
    flight_bytes_ -= entry.bytes();
  }
  count_ahead(entry, false);
  count_away(entry, false);
  live_bytes_ -= entry.bytes();
  if (!entry.block.empty()) {
    host_.give(std::move(entry.block), entry.in ? std::move(entry.in) : std::move(entry.out));
  }
}

void TensorStash::Impl::begin_step() {
  const std::uint64_t serial = step_.serial + 1;
  step_ = {};
  step_.serial = serial;
  step_.begin = Clock::now();
  step_.page_locks_before = host_.page_locks();
}

void TensorStash::Impl::end_step() {
  const std::lock_guard lock(mutex_);
  finish_step();
}

// Handles that are alive belong to no step afterwards.
void TensorStash::Impl::finish_step() {
  const Step ended = std::exchange(step_, Step{.serial = step_.serial + 1});
  if (ended.record.tensors.empty()) {
    return;
  }
  ++statistics_.steps;
  bool has_new_plan = true;
  if (ended.kind != nullptr && is_same_course(ended.record, ended.kind->record)) {
    ++statistics_.repeated_steps;
    statistics_.late_when_repeated += ended.late;
    statistics_.page_locks_when_repeated += host_.page_locks() - ended.page_locks_before;
    has_new_plan = known_.repeat(ended.kind, ended.record, limits_of(ended.record), ended.peak_bytes);
    note_budget(known_.latest()->plan.peak_bytes);
  } else {
    known_.learn(ended.record, limits_of(ended.record));
  }
  if (has_new_plan) {
    ++statistics_.plans;
    reserve_for(*known_.latest());
  }
}

// By a plan that knows the bytes in use of a step that is not the program's first.
void TensorStash::Impl::note_budget(std::uint64_t needed_bytes) {
  if (options_.budget_bytes > 0 && needed_bytes > options_.budget_bytes) {
    notices_.note_budget_exceeded(needed_bytes);
  }
}

// So that the plan's first step locks no page.
void TensorStash::Impl::reserve_for(const KnownStep& kind) {
  for (const auto& [bytes, count] : host_blocks_of(kind.record, kind.plan.leaves)) {
    host_.reserve(bytes, count);
  }
}

void TensorStash::Impl::forget() {
  const std::lock_guard lock(mutex_);
  step_.kind = nullptr;
  known_.forget();
}

std::string TensorStash::Impl::take_notice(std::size_t capacity) {
  const std::lock_guard lock(mutex_);
  return notices_.take(host_.budget_bytes(), options_.budget_bytes, capacity);
}

StashStatistics TensorStash::Impl::statistics() const {
  const StashBackend::Times times = backend_->times();
  const std::lock_guard lock(mutex_);
  StashStatistics result = statistics_;
  result.device_peak_bytes = peak_bytes_;
  if (const KnownStep* const latest = known_.latest()) {
    result.planned_peak_bytes = latest->plan.peak_bytes;
    result.planned_out_bytes = latest->plan.leaving_bytes;
  }
  result.live_handles = entries_.size();
  result.host_bytes = host_.bytes();
  result.host_peak_bytes = host_.peak_bytes();
  result.page_locks = host_.page_locks();
  result.copy_nanoseconds = times.copy_nanoseconds;
  result.wait_nanoseconds = times.wait_nanoseconds;
  return result;
}

std::string TensorStash::Impl::learned_step() const {
  const std::lock_guard lock(mutex_);
  const KnownStep* const latest = known_.latest();
  return latest == nullptr ? "" : stash::to_json(latest->record, backend_->name());
}

// --- the class ---------------------------------------------------------------------------------------------

TensorStash::TensorStash(std::unique_ptr<StashBackend> backend, const StashOptions& options)
    : impl_(std::make_unique<Impl>(std::move(backend), options)) {}
TensorStash::~TensorStash() = default;
PutAnswer TensorStash::put(const SavedTensor& tensor, std::uint64_t in_use_bytes) {
  return impl_->put(tensor, in_use_bytes);
}
std::vector<StashHandle> TensorStash::leaving(std::size_t capacity) {
  return impl_->leaving(capacity);
}
PutAnswer TensorStash::leave(StashHandle handle, StreamHandle stream) {
  return impl_->leave(handle, stream);
}
void TensorStash::stay(StashHandle handle) {
  impl_->stay(handle);
}
std::vector<StashHandle> TensorStash::released(StreamHandle stream, std::size_t capacity) {
  return impl_->released(stream, capacity);
}
ReadAnswer TensorStash::read(StashHandle handle, StreamHandle stream, std::uint64_t in_use_bytes, bool held) {
  return impl_->read(handle, stream, in_use_bytes, held);
}
std::vector<DueFetch> TensorStash::fetches(StashHandle reading, std::size_t capacity) {
  return impl_->fetches(reading, capacity);
}
void TensorStash::fetch(StashHandle handle, std::uint64_t target, StreamHandle stream) {
  impl_->fetch(handle, target, stream);
}
void TensorStash::ready(StashHandle handle, StreamHandle stream) {
  impl_->ready(handle, stream);
}
void TensorStash::drop(StashHandle handle) {
  impl_->drop(handle);
}
void TensorStash::end_step() {
  impl_->end_step();
}
void TensorStash::forget() {
  impl_->forget();
}
std::string TensorStash::take_notice(std::size_t capacity) {
  return impl_->take_notice(capacity);
}
StashStatistics TensorStash::statistics() const {
  return impl_->statistics();
}
std::string TensorStash::learned_step() const {
  return impl_->learned_step();
}
const StashBackend& TensorStash::backend() const {
  return impl_->backend();
}

}  // namespace vdnn
