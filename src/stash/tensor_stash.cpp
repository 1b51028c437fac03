#include "vdnn/tensor_stash.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "src/stash/backend_calls.h"
#include "src/stash/bytes_on_device.h"
#include "src/stash/copies_in_flight.h"
#include "src/stash/fetch_window.h"
#include "src/stash/host_blocks.h"
#include "src/stash/leaving_order.h"
#include "src/stash/leaving_rules.h"
#include "src/stash/ordered_copies.h"
#include "src/stash/stash_notices.h"
#include "src/stash/step_borders.h"
#include "src/stash/step_learner.h"
#include "src/stash/step_under_way.h"
#include "src/stash/tensor_table.h"
#include "streams/host_memory.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

using stash::BackendCalls;
using stash::KnownStep;
using stash::OrderedCopies;
using stash::StashedTensor;
using stash::StepTensor;
using stash::StepUnderWay;
using stash::Where;

// A step with more tensors or events is assumed never to end by itself, for example because the program keeps
// its graphs and repeats nothing.
constexpr std::size_t kMostTensors = std::size_t{1} << 16;
constexpr std::size_t kMostEvents = 4 * kMostTensors;

}  // namespace

std::uint64_t default_host_bytes() {
  constexpr std::uint64_t kShare = 2;
  const std::uint64_t all = host_memory_bytes();
  return std::min(all, cgroup_memory_limit().value_or(all)) / kShare;
}

// Serialises the calls and coordinates the parts. Except for drop(), a call that throws changes no handle.
class TensorStash::Impl {
 public:
  Impl(std::unique_ptr<StashBackend> backend, const StashOptions& options)
      : backend_(std::move(backend)),
        options_(options),
        host_(*backend_, options.host_bytes == 0 ? default_host_bytes() : options.host_bytes),
        copies_(*backend_, host_),
        rules_(options) {}
  ~Impl() {
    tensors_.for_each([this](StashedTensor& tensor) { copies_.give_block_back(tensor); });
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  PutAnswer put(const SavedTensor& saved, std::uint64_t in_use_bytes);
  std::vector<StashHandle> leaving(std::size_t capacity);
  PutAnswer leave(StashHandle handle, StreamHandle stream);
  void stay(StashHandle handle);
  void hold(StashHandle handle);
  void note_held(StashHandle handle, bool held);
  void note_peak(std::uint64_t bytes);
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
  StashedTensor& find(StashHandle handle);
  PutAnswer share(StashHandle handle);
  PutAnswer answer(StashHandle handle, const StashedTensor& tensor);
  void end_step_before(const SavedTensor& saved);
  void put_new(StashHandle handle, StashedTensor& tensor, std::uint64_t told_bytes);
  void follow(const stash::AlikeKinds& alike);
  // Copies a tensor out. `kind`: the kind whose plan the step follows from this tensor on. Null: none; then
  // kept host blocks may be freed to make room for the copy. `later`: empty at the tensor's save, otherwise
  // the stream of leave(), whose work so far precedes the copy.
  void send_out(StashHandle handle, StashedTensor& tensor, const KnownStep* kind,
                std::optional<StreamHandle> later = std::nullopt);
  void note_released(StashedTensor& tensor);
  [[noreturn]] void refuse_capture() const;
  void order_after_fetch(StashedTensor& tensor, StreamHandle stream, bool is_captured);
  void note_read(StashedTensor& tensor, std::uint64_t told_bytes, bool held, bool ends_pass);
  void note_fetched(StashedTensor& tensor);
  void let_go_of_target(StashedTensor& tensor);
  void note_let_go(StashedTensor& tensor);
  void forget_tensor(StashHandle handle, StashedTensor& tensor) noexcept;
  // Returns the step that was under way.
  StepUnderWay start_step();
  void finish_step(bool overlaps = false);
  void finish_overlapping_step();

  std::uint64_t excess(std::uint64_t named_bytes = 0) const {
    return rules_.excess(step_, bytes_.in_use(), flight_.bytes(), named_bytes);
  }
  std::optional<StashHandle> next_offer() { return offers_.next(tensors_, step_.handles()); }
  // `listed`: bytes of the tensors that the current call of fetches() has listed to be fetched ahead.
  stash::FetchWindow::Next next_fetch(StashHandle reading, std::uint64_t listed) {
    return window_.next(step_, tensors_, reading, bytes_.ahead() + listed);
  }
  bool may_fetch_after_read(const StashedTensor& tensor) const {
    return window_.may_have_next(step_, step_.reads() + (step_.has(tensor) ? 1 : 0));
  }
  bool has_released() const { return flight_.any_due(rules_.flight_limit(step_)); }

  const std::unique_ptr<StashBackend> backend_;
  const StashOptions options_;
  mutable std::mutex mutex_;  // guards the members below
  stash::HostBlocks host_;
  OrderedCopies copies_;
  stash::LeavingRules rules_;
  stash::TensorTable tensors_;
  stash::CopiesInFlight flight_;
  stash::BytesOnDevice bytes_;
  StepUnderWay step_{0, 0, {}};
  std::optional<StepUnderWay::Clock::time_point> last_end_;  // when the previous step ended
  stash::LeavingOrder offers_;                               // of step_
  stash::FetchWindow window_;                                // of step_
  stash::StepBorders borders_;                               // of step_
  stash::StashNotices notices_;
  stash::StepLearner learner_{rules_, host_, notices_};
  StashStatistics statistics_;
};

StashedTensor& TensorStash::Impl::find(StashHandle handle) {
  StashedTensor* const found = tensors_.find(handle);
  if (found == nullptr) {
    throw InvalidArgument(backend_->name() + ": the stash has no handle " + std::to_string(handle));
  }
  return *found;
}

// --- saving ------------------------------------------------------------------------------------------------

PutAnswer TensorStash::Impl::put(const SavedTensor& saved, std::uint64_t in_use_bytes) {
  if (saved.source.bytes == 0) {
    throw InvalidArgument(backend_->name() + ": a saved tensor has no bytes");
  }
  const std::lock_guard lock(mutex_);
  if (const std::optional<StashHandle> shared = tensors_.handle_of(saved.contents)) {
    return share(*shared);
  }
  end_step_before(saved);
  if (step_.handles().empty()) {
    start_step();
  }
  step_.make_room_for_save();
  const auto [handle, tensor] = tensors_.add(saved);
  try {
    put_new(handle, tensor, in_use_bytes);
  } catch (...) {
    tensors_.take_back(handle);
    throw;
  }
  PutAnswer put = answer(handle, tensor);
  put.is_watched = step_.is_watched();
  return put;
}

// Ends the step if this save belongs to the next one.
void TensorStash::Impl::end_step_before(const SavedTensor& saved) {
  const StepTensor next{.bytes = saved.source.bytes, .signature = saved.signature};
  if (step_.handles().size() == kMostTensors) {
    finish_step();
  } else if (step_.is_at_turn() && learner_.alike(step_, next).is_empty()) {
    if (learner_.ends_before(step_, next)) {
      finish_overlapping_step();
    } else if (const auto period = borders_.note_turn(step_)) {
      step_.keep_from(period->first_tensor, period->first_event);
      finish_overlapping_step();
    }
  }
}

PutAnswer TensorStash::Impl::answer(StashHandle handle, const StashedTensor& tensor) {
  return {.handle = handle,
          .verdict = tensor.where == Where::kKept ? StashVerdict::kKept : StashVerdict::kLeaves,
          .has_released = has_released(),
          .has_leaving = excess() > 0 && next_offer(),
          .has_notice = notices_.is_pending()};
}

PutAnswer TensorStash::Impl::share(StashHandle handle) {
  StashedTensor& tensor = find(handle);
  ++tensor.users;
  ++tensor.unread;
  ++statistics_.puts;
  ++statistics_.shared;
  return {.handle = handle,
          .verdict = StashVerdict::kShared,
          .has_released = has_released(),
          .is_watched = step_.has(tensor) && step_.is_watched() && !tensor.is_held};
}

// Nothing can throw after send_out(), which changes nothing if it throws.
void TensorStash::Impl::put_new(StashHandle handle, StashedTensor& tensor, std::uint64_t told_bytes) {
  tensor.step = step_.serial();
  tensor.index = static_cast<std::uint32_t>(step_.handles().size());
  tensor.stream_id = copies_.id_of(tensor.saved.stream);
  const stash::AlikeKinds alike = learner_.alike(step_, StepUnderWay::describe(tensor));
  bytes_.note_in_use(told_bytes, tensor.bytes());
  step_.note_in_use(bytes_.in_use());
  const stash::BytesInUse with_all = bytes_.with_all();
  flight_.note_saved(tensor.bytes());
  if (rules_.should_leave(alike, tensor.index)) {
    send_out(handle, tensor, alike.best(step_.kind()));
  }
  follow(alike);
  step_.add(handle, tensor, with_all);
  offers_.note_saved();
  bytes_.add(tensor);
  ++statistics_.puts;
}

void TensorStash::Impl::follow(const stash::AlikeKinds& alike) {
  const KnownStep* const before = step_.kind();
  step_.follow(alike);
  if (step_.kind() == before) {
    return;
  }
  if (alike.is_empty()) {
    ++statistics_.diverged_steps;
  }
  window_.restart(step_);
}

// If the tensor cannot be copied, it stays on the device.
void TensorStash::Impl::send_out(StashHandle handle, StashedTensor& tensor, const KnownStep* kind,
                                 std::optional<StreamHandle> later) {
  const auto room = kind == nullptr ? stash::HostBlocks::Room::kMade : stash::HostBlocks::Room::kLeft;
  const BackendCalls calls(*backend_);
  flight_.add(handle, tensor);
  auto begun = OrderedCopies::CopyOut::kNotNow;
  try {
    begun = later ? copies_.copy_out_later(tensor, *later, room) : copies_.copy_out(tensor, room);
  } catch (...) {
    flight_.remove_latest();
    throw;
  }
  if (begun != OrderedCopies::CopyOut::kBegun) {
    flight_.remove_latest();
    if (begun == OrderedCopies::CopyOut::kNoHostMemory) {
      if (host_.is_refused_by_system()) {
        notices_.note_host_refused(tensor.bytes(), host_.bytes());
      } else {
        notices_.note_host_exhausted(tensor.bytes());
      }
      step_.note_refused();
      ++statistics_.refused;
    }
    return;
  }
  tensor.where = Where::kInFlight;
  tensor.out_number = ++statistics_.left;
  statistics_.out_bytes += tensor.bytes();
  if (options_.release_at_put) {
    flight_.remove_latest();
    tensor.is_released_at_put = true;
    note_released(tensor);
  }
}

void TensorStash::Impl::note_released(StashedTensor& tensor) {
  tensor.where = Where::kAway;
  bytes_.set_away(tensor, !tensor.is_held);
}

// --- leaving later -----------------------------------------------------------------------------------------

std::vector<StashHandle> TensorStash::Impl::leaving(std::size_t capacity) {
  const std::lock_guard lock(mutex_);
  std::vector<StashHandle> handles;
  handles.reserve(std::min(capacity, step_.handles().size()));
  std::uint64_t named_bytes = 0;
  while (handles.size() < capacity && excess(named_bytes) > 0) {
    const std::optional<StashHandle> next = next_offer();
    if (!next) {
      break;
    }
    handles.push_back(*next);
    named_bytes += find(*next).bytes();
    offers_.note_offered();
  }
  return handles;
}

PutAnswer TensorStash::Impl::leave(StashHandle handle, StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  StashedTensor& tensor = find(handle);
  if (tensor.where == Where::kKept) {
    send_out(handle, tensor, step_.kind(), stream);
  }
  return answer(handle, tensor);
}

void TensorStash::Impl::stay(StashHandle handle) {
  const std::lock_guard lock(mutex_);
  step_.mark_held(find(handle));
}

void TensorStash::Impl::hold(StashHandle handle) {
  const std::lock_guard lock(mutex_);
  StashedTensor& tensor = find(handle);
  if (!tensor.is_released_at_put || tensor.where != Where::kAway) {
    throw InvalidArgument(backend_->name() + ": the source of handle " + std::to_string(handle) +
                          " was not released at its put");
  }
  flight_.add(handle, tensor);
  tensor.is_released_at_put = false;
  tensor.where = Where::kInFlight;
  bytes_.set_away(tensor, false);
}

// A released tensor still uses memory while others hold it.
void TensorStash::Impl::note_held(StashHandle handle, bool held) {
  const std::lock_guard lock(mutex_);
  StashedTensor& tensor = find(handle);
  if (tensor.is_held && !held) {
    step_.mark_held(tensor);
  }
  tensor.is_held = held;
  if (tensor.where == Where::kAway) {
    bytes_.set_away(tensor, !held);
  }
}

void TensorStash::Impl::note_peak(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  // Memory that the program used before its first put does not count.
  if (statistics_.puts > 0) {
    bytes_.note_peak(bytes);
  }
}

std::vector<StashHandle> TensorStash::Impl::released(StreamHandle stream, std::size_t capacity) {
  const std::lock_guard lock(mutex_);
  std::vector<StashHandle> handles(flight_.count_due(rules_.flight_limit(step_), capacity));
  if (handles.empty()) {
    return handles;
  }
  const BackendCalls calls(*backend_);
  if (copies_.is_captured(stream)) {
    return {};
  }
  copies_.order_after_copies(stream, flight_.latest_of(handles.size()));
  for (std::size_t i = 0; i < handles.size(); ++i) {
    handles[i] = flight_.at(i).handle;
    copies_.order_producer_after_copy(*flight_.at(i).tensor, stream);
  }
  for (std::size_t i = 0; i < handles.size(); ++i) {
    note_released(*flight_.at(0).tensor);
    flight_.remove_oldest();
  }
  return handles;
}

// --- reading -----------------------------------------------------------------------------------------------

ReadAnswer TensorStash::Impl::read(StashHandle handle, StreamHandle stream, std::uint64_t told_bytes,
                                   bool held) {
  const std::lock_guard lock(mutex_);
  StashedTensor& tensor = find(handle);
  if (step_.record().events.size() == kMostEvents) {
    finish_step();
  }
  step_.make_room_for_read();
  const bool is_back = tensor.where == Where::kFetched;
  const bool is_missing = tensor.where == Where::kAway && !held;
  const bool is_last = tensor.unread <= 1;
  std::optional<BackendCalls> calls;
  bool is_captured = false;
  if (is_back || is_missing || may_fetch_after_read(tensor)) {
    calls.emplace(*backend_);
    is_captured = copies_.is_captured(stream);
  }
  ReadAnswer answer;
  if (is_back) {
    order_after_fetch(tensor, stream, is_captured);
    answer = {.place = StashPlace::kBack, .last = is_last};
    if (is_last) {
      let_go_of_target(tensor);
    }
  } else if (is_missing) {
    if (is_captured) {
      refuse_capture();
    }
    answer = {.place = StashPlace::kMissing, .last = is_last};
    tensor.is_missing = true;
    tensor.ends_with_ready = is_last;
  }
  note_read(tensor, told_bytes, held, is_last);
  if (is_back && is_last) {
    note_let_go(tensor);
  }
  answer.has_fetches = is_missing || (!is_captured && next_fetch(handle, 0).tensor != nullptr);
  return answer;
}

// A captured stream cannot wait for work outside of its capture, and the graph would not wait for that work
// when it is launched.
void TensorStash::Impl::refuse_capture() const {
  throw CaptureConflict(backend_->name() +
                        ": a stream that is being captured cannot wait for a tensor that left earlier");
}

void TensorStash::Impl::order_after_fetch(StashedTensor& tensor, StreamHandle stream, bool is_captured) {
  if (!is_captured) {
    copies_.order_after_fetch(tensor, stream);
  } else if (!OrderedCopies::has_joined(tensor, stream)) {
    refuse_capture();
  }
}

void TensorStash::Impl::note_read(StashedTensor& tensor, std::uint64_t told_bytes, bool held,
                                  bool ends_pass) {
  bytes_.note_in_use(told_bytes);
  step_.note_in_use(bytes_.in_use());
  bytes_.set_ahead(tensor, false);
  ++tensor.reads;
  tensor.unread = tensor.unread <= 1 ? tensor.users : tensor.unread - 1;
  if (held) {
    step_.mark_staying(tensor);
  }
  step_.add_read(tensor, bytes_.with_all(), ends_pass);
}

std::vector<DueFetch> TensorStash::Impl::fetches(StashHandle reading, std::size_t capacity) {
  const std::lock_guard lock(mutex_);
  const StashedTensor& tensor = find(reading);
  std::vector<DueFetch> due;
  if (tensor.is_missing && tensor.where == Where::kAway && capacity > 0) {
    due.push_back({.handle = reading, .bytes = tensor.bytes()});
  }
  std::uint64_t listed = 0;
  while (due.size() < capacity) {
    const auto [handle, next] = next_fetch(reading, listed);
    if (next == nullptr) {
      break;
    }
    due.push_back({.handle = handle, .bytes = next->bytes()});
    listed += next->bytes();
    window_.note_listed(*next);
  }
  return due;
}

void TensorStash::Impl::fetch(StashHandle handle, std::uint64_t target, StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  StashedTensor& tensor = find(handle);
  if (tensor.where != Where::kAway) {
    throw InvalidArgument(backend_->name() + ": the tensor of handle " + std::to_string(handle) +
                          " is on the device");
  }
  const BackendCalls calls(*backend_);
  if (copies_.is_captured(stream)) {
    refuse_capture();
  }
  copies_.copy_in(tensor, target, stream);
  note_fetched(tensor);
}

void TensorStash::Impl::note_fetched(StashedTensor& tensor) {
  tensor.where = Where::kFetched;
  tensor.is_released_at_put = false;
  tensor.is_listed = false;
  statistics_.in_bytes += tensor.bytes();
  step_.note_back(tensor);
  bytes_.set_away(tensor, false);
  if (tensor.is_missing) {
    ++statistics_.fetched_late;
    step_.note_late();
  } else {
    ++statistics_.fetched_ahead;
    bytes_.set_ahead(tensor, true);
  }
}

void TensorStash::Impl::ready(StashHandle handle, StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  StashedTensor& tensor = find(handle);
  if (tensor.where != Where::kFetched) {
    throw InvalidArgument(backend_->name() + ": the tensor of handle " + std::to_string(handle) +
                          " has not been fetched");
  }
  const BackendCalls calls(*backend_);
  order_after_fetch(tensor, stream, copies_.is_captured(stream));
  tensor.is_missing = false;
  if (std::exchange(tensor.ends_with_ready, false)) {
    let_go_of_target(tensor);
    note_let_go(tensor);
  }
}

void TensorStash::Impl::let_go_of_target(StashedTensor& tensor) {
  copies_.let_go_of_target(tensor);
  tensor.where = Where::kAway;
}

// The caller now releases the target, so the bytes in use that it reports no longer include the tensor. Most
// graphs are read once, and then the reported bytes are right. If another pass reads the tensor,
// StepUnderWay::note_back() adds the tensor's bytes to the events between the two passes. It leaves out the
// first of these events, at which a reader of several tensors may still hold the target.
void TensorStash::Impl::note_let_go(StashedTensor& tensor) {
  if (bytes_.is_told()) {
    step_.note_let_go(tensor);
  } else {
    bytes_.set_away(tensor, true);
  }
}

// --- ends --------------------------------------------------------------------------------------------------

void TensorStash::Impl::drop(StashHandle handle) {
  const std::lock_guard lock(mutex_);
  StashedTensor& tensor = find(handle);
  if (--tensor.users > 0) {
    tensor.unread = std::min(tensor.unread, tensor.users);
    return;
  }
  const auto node = tensors_.remove(handle);
  std::exception_ptr failure;
  const auto attempt = [&failure](const auto& part) {
    try {
      part();
    } catch (...) {
      failure = std::current_exception();
    }
  };
  attempt([&] { copies_.order_releases(tensor); });
  forget_tensor(handle, tensor);
  if (step_.drop(tensor)) {
    attempt([&] { finish_step(); });
  }
  if (tensors_.size() == 0 && borders_.note_empty()) {
    learner_.forget_overlapping();
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
}

void TensorStash::Impl::forget_tensor(StashHandle handle, StashedTensor& tensor) noexcept {
  if (tensor.where == Where::kInFlight) {
    flight_.remove(handle);
  }
  bytes_.remove(tensor);
  copies_.give_block_back(tensor);
}

// After this call, no live handle belongs to the step under way.
StepUnderWay TensorStash::Impl::start_step() {
  offers_ = {};
  window_ = {};
  borders_.restart();
  const auto begin = last_end_.value_or(StepUnderWay::Clock::now());
  return std::exchange(step_, StepUnderWay(step_.serial() + 1, host_.page_locks(), begin));
}

void TensorStash::Impl::finish_step(bool overlaps) {
  if (!step_.handles().empty()) {
    last_end_ = StepUnderWay::Clock::now();
    step_.end(*last_end_);
  }
  // Tensors of the ended step do not count against the fetch window of the next step.
  tensors_.for_each([this](StashedTensor& tensor) { bytes_.set_ahead(tensor, false); });
  learner_.learn(start_step(), overlaps, statistics_);
}

void TensorStash::Impl::finish_overlapping_step() {
  finish_step(true);
  if (learner_.latest()->overlaps) {
    borders_.note_border();
  }
}

void TensorStash::Impl::end_step() {
  const std::lock_guard lock(mutex_);
  finish_step();
}

void TensorStash::Impl::forget() {
  const std::lock_guard lock(mutex_);
  step_.follow(stash::AlikeKinds());
  learner_.forget();
}

std::string TensorStash::Impl::take_notice(std::size_t capacity) {
  const std::lock_guard lock(mutex_);
  return notices_.take(host_.budget_bytes(), options_.budget_bytes, capacity);
}

StashStatistics TensorStash::Impl::statistics() const {
  const StashBackend::Times times = backend_->times();
  const std::lock_guard lock(mutex_);
  StashStatistics result = statistics_;
  result.device_peak_bytes = bytes_.peak();
  if (const KnownStep* const latest = learner_.latest()) {
    result.planned_peak_bytes = latest->plan.peak_bytes;
    result.planned_out_bytes = latest->plan.leaving_bytes;
  }
  result.live_handles = tensors_.size();
  result.host_bytes = host_.bytes();
  result.host_peak_bytes = host_.peak_bytes();
  result.page_locks = host_.page_locks();
  result.copy_nanoseconds = times.copy_nanoseconds;
  result.wait_nanoseconds = times.wait_nanoseconds;
  return result;
}

std::string TensorStash::Impl::learned_step() const {
  const std::lock_guard lock(mutex_);
  const KnownStep* const latest = learner_.latest();
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
void TensorStash::hold(StashHandle handle) {
  impl_->hold(handle);
}
void TensorStash::note_held(StashHandle handle, bool held) {
  impl_->note_held(handle, held);
}
void TensorStash::note_peak(std::uint64_t bytes) {
  impl_->note_peak(bytes);
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
