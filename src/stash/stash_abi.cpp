#include "src/stash/stash_abi.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "allocator/dropin/c_status.h"
#include "src/stash/fork_guard.h"
#include "vdnn/tensor_stash.h"

struct vdnn_stash {
  vdnn_stash(std::unique_ptr<vdnn::StashBackend> backend, const vdnn::StashOptions& options, bool on_host)
      : is_on_host(on_host), stash(std::move(backend), options) {}

  const bool is_on_host;
  const vdnn::stash::ForkGuard guard;
  vdnn::TensorStash stash;
};

namespace vdnn {

namespace {

vdnn_stash& handle_of(vdnn_stash* handle) {
  vdnn_stash& alive = given(handle, "stash");
  if (alive.guard.is_in_child()) {
    throw InvalidArgument("the stash belongs to the parent process: it was created before fork()");
  }
  return alive;
}

TensorStash& stash_of(vdnn_stash* handle) {
  return handle_of(handle).stash;
}

// --- arguments ---------------------------------------------------------------------------------------------

vdnn_stash_options default_stash_options() {
  const StashOptions defaults;
  return {.version = VDNN_STASH_VERSION,
          .device = VDNN_STASH_HOST,
          .budget_bytes = defaults.budget_bytes,
          .host_bytes = defaults.host_bytes,
          .ahead_bytes = 0,
          .flight_bytes = 0,
          .release_at_put = defaults.release_at_put ? 1U : 0U,
          .timed = 0,
          .delay_seed = 0};
}

vdnn_stash_options checked_options(const vdnn_stash_options* options) {
  if (options == nullptr) {
    return default_stash_options();
  }
  check_version(options->version, VDNN_STASH_VERSION);
  if (options->device < VDNN_STASH_HOST) {
    throw InvalidArgument("there is no device " + std::to_string(options->device));
  }
  if (options->release_at_put > 1) {
    throw InvalidArgument("release_at_put is " + std::to_string(options->release_at_put) + ", not 0 or 1");
  }
  if (options->timed > 1) {
    throw InvalidArgument("timed is " + std::to_string(options->timed) + ", not 0 or 1");
  }
  if (options->delay_seed != 0 && options->device != VDNN_STASH_HOST) {
    throw InvalidArgument("delay_seed is for a stash on the host");
  }
  return *options;
}

bool checked_held(std::uint32_t held) {
  if (held > 1) {
    throw InvalidArgument("held is " + std::to_string(held) + ", not 0 or 1");
  }
  return held == 1;
}

std::optional<std::uint64_t> unless_zero(std::uint64_t number) {
  return number == 0 ? std::nullopt : std::optional(number);
}

StashOptions stash_options(const vdnn_stash_options& options) {
  return {.budget_bytes = options.budget_bytes,
          .host_bytes = options.host_bytes,
          .ahead_bytes = unless_zero(options.ahead_bytes),
          .flight_bytes = unless_zero(options.flight_bytes),
          .release_at_put = options.release_at_put == 1};
}

std::unique_ptr<StashBackend> backend_for(const vdnn_stash_options& options) {
  return options.device == VDNN_STASH_HOST ? make_host_stash_backend(unless_zero(options.delay_seed))
                                           : make_cuda_stash_backend(options.device, options.timed == 1);
}

// --- results -----------------------------------------------------------------------------------------------

std::uint32_t to_c(const PutAnswer& answer) {
  const std::uint32_t verdict = answer.verdict == StashVerdict::kKept     ? VDNN_STASH_KEPT
                                : answer.verdict == StashVerdict::kLeaves ? VDNN_STASH_LEAVES
                                                                          : VDNN_STASH_SHARED;
  return verdict | (answer.has_released ? VDNN_STASH_RELEASED : 0U) |
         (answer.has_leaving ? VDNN_STASH_LEAVING : 0U) | (answer.has_notice ? VDNN_STASH_NOTICE : 0U) |
         (answer.is_watched ? VDNN_STASH_WATCHED : 0U);
}

std::uint32_t to_c(const ReadAnswer& answer) {
  const std::uint32_t place = answer.place == StashPlace::kInPlace ? VDNN_STASH_IN_PLACE
                              : answer.place == StashPlace::kBack  ? VDNN_STASH_BACK
                                                                   : VDNN_STASH_MISSING;
  return place | (answer.has_fetches ? VDNN_STASH_FETCHES : 0U) | (answer.last ? VDNN_STASH_LAST : 0U);
}

vdnn_stash_statistics to_c(const StashStatistics& statistics) {
  return {.version = VDNN_STASH_VERSION,
          .reserved = 0,
          .puts = statistics.puts,
          .shared = statistics.shared,
          .left = statistics.left,
          .refused = statistics.refused,
          .fetched_ahead = statistics.fetched_ahead,
          .fetched_late = statistics.fetched_late,
          .late_when_repeated = statistics.late_when_repeated,
          .out_bytes = statistics.out_bytes,
          .in_bytes = statistics.in_bytes,
          .live_handles = statistics.live_handles,
          .host_bytes = statistics.host_bytes,
          .host_peak_bytes = statistics.host_peak_bytes,
          .device_peak_bytes = statistics.device_peak_bytes,
          .planned_peak_bytes = statistics.planned_peak_bytes,
          .page_locks = statistics.page_locks,
          .page_locks_when_repeated = statistics.page_locks_when_repeated,
          .steps = statistics.steps,
          .repeated_steps = statistics.repeated_steps,
          .diverged_steps = statistics.diverged_steps,
          .plans = statistics.plans,
          .copy_nanoseconds = statistics.copy_nanoseconds,
          .wait_nanoseconds = statistics.wait_nanoseconds,
          .planned_out_bytes = statistics.planned_out_bytes};
}

// Checks the result pointers, then calls `ask` with the capacity.
template <class Ask>
vdnn_status give_handles(vdnn_stash_handle* handles, std::uint32_t capacity, std::uint32_t* count,
                         const Ask& ask) noexcept {
  return guarded([&] {
    vdnn_stash_handle& first = given(handles, "handles");
    std::uint32_t& found = given(count, "count");
    const std::vector<StashHandle> all = ask(capacity);
    std::ranges::copy(all, &first);
    found = static_cast<std::uint32_t>(all.size());
  });
}

}  // namespace

vdnn_status create_stash(std::unique_ptr<StashBackend> backend, const vdnn_stash_options* options,
                         vdnn_stash** stash) noexcept {
  return guarded([&] {
    vdnn_stash*& result = given(stash, "stash");
    given(backend.get(), "backend");
    result = std::make_unique<vdnn_stash>(std::move(backend), stash_options(checked_options(options)), false)
                 .release();
  });
}

}  // namespace vdnn

using vdnn::given;
using vdnn::guarded;
using vdnn::stash_of;

extern "C" {

vdnn_status vdnn_stash_options_init(vdnn_stash_options* options, uint32_t version) {
  return guarded([&] {
    vdnn::check_version(version, VDNN_STASH_VERSION);
    given(options, "options") = vdnn::default_stash_options();
  });
}

vdnn_status vdnn_stash_default_host_bytes(uint64_t* bytes) {
  return guarded([&] { given(bytes, "bytes") = vdnn::default_host_bytes(); });
}

vdnn_status vdnn_stash_create(const vdnn_stash_options* options, vdnn_stash** stash) {
  return guarded([&] {
    vdnn_stash*& result = given(stash, "stash");
    const vdnn_stash_options checked = vdnn::checked_options(options);
    result = new vdnn_stash(vdnn::backend_for(checked), vdnn::stash_options(checked),
                            checked.device == VDNN_STASH_HOST);
  });
}

vdnn_status vdnn_stash_destroy(vdnn_stash* stash) {
  return guarded([&] {
    // A child process has no threads to join, and the streams belong to the parent.
    if (stash != nullptr && !stash->guard.is_in_child()) {
      delete stash;
    }
  });
}

vdnn_status vdnn_stash_streams(vdnn_stash* stash, void** offload, void** prefetch) {
  return guarded([&] {
    const vdnn_stash& of = vdnn::handle_of(stash);
    void*& out = given(offload, "offload");
    void*& in = given(prefetch, "prefetch");
    out = of.is_on_host ? nullptr : of.stash.backend().offload_stream();
    in = of.is_on_host ? nullptr : of.stash.backend().prefetch_stream();
  });
}

vdnn_status vdnn_stash_put(vdnn_stash* stash, const void* source, uint64_t bytes, void* stream,
                           uint64_t storage, uint64_t version, uint64_t signature, uint64_t in_use_bytes,
                           vdnn_stash_handle* handle, uint32_t* answer) {
  return guarded([&] {
    vdnn::TensorStash& of = stash_of(stash);
    vdnn_stash_handle& given_handle = given(handle, "handle");
    std::uint32_t& given_answer = given(answer, "answer");
    const vdnn::PutAnswer put = of.put({.source = {.begin = reinterpret_cast<std::uintptr_t>(
                                                       &given(static_cast<const char*>(source), "source")),
                                                   .bytes = bytes},
                                        .stream = stream,
                                        .contents = {.storage = storage, .version = version},
                                        .signature = signature},
                                       in_use_bytes);
    given_handle = put.handle;
    given_answer = vdnn::to_c(put);
  });
}

vdnn_status vdnn_stash_leaving(vdnn_stash* stash, vdnn_stash_handle* handles, uint32_t capacity,
                               uint32_t* count) {
  return vdnn::give_handles(handles, capacity, count,
                            [&](std::uint32_t most) { return stash_of(stash).leaving(most); });
}

vdnn_status vdnn_stash_leave(vdnn_stash* stash, vdnn_stash_handle handle, void* stream, uint32_t* answer) {
  return guarded([&] {
    vdnn::TensorStash& of = stash_of(stash);
    std::uint32_t& result = given(answer, "answer");
    result = vdnn::to_c(of.leave(handle, stream));
  });
}

vdnn_status vdnn_stash_stay(vdnn_stash* stash, vdnn_stash_handle handle) {
  return guarded([&] { stash_of(stash).stay(handle); });
}

vdnn_status vdnn_stash_hold(vdnn_stash* stash, vdnn_stash_handle handle) {
  return guarded([&] { stash_of(stash).hold(handle); });
}

vdnn_status vdnn_stash_note_held(vdnn_stash* stash, vdnn_stash_handle handle, uint32_t held) {
  return guarded([&] {
    vdnn::TensorStash& of = stash_of(stash);
    of.note_held(handle, vdnn::checked_held(held));
  });
}

vdnn_status vdnn_stash_note_peak(vdnn_stash* stash, uint64_t bytes) {
  return guarded([&] { stash_of(stash).note_peak(bytes); });
}

vdnn_status vdnn_stash_released(vdnn_stash* stash, void* stream, vdnn_stash_handle* handles,
                                uint32_t capacity, uint32_t* count) {
  return vdnn::give_handles(handles, capacity, count,
                            [&](std::uint32_t most) { return stash_of(stash).released(stream, most); });
}

vdnn_status vdnn_stash_read(vdnn_stash* stash, vdnn_stash_handle handle, void* stream, uint64_t in_use_bytes,
                            uint32_t held, uint32_t* answer) {
  return guarded([&] {
    vdnn::TensorStash& of = stash_of(stash);
    std::uint32_t& result = given(answer, "answer");
    result = vdnn::to_c(of.read(handle, stream, in_use_bytes, vdnn::checked_held(held)));
  });
}

vdnn_status vdnn_stash_fetches(vdnn_stash* stash, vdnn_stash_handle reading, vdnn_stash_handle* handles,
                               uint64_t* bytes, uint32_t capacity, uint32_t* count) {
  return vdnn::give_handles(handles, capacity, count, [&](std::uint32_t most) {
    std::uint64_t* const sizes = &given(bytes, "bytes");
    const std::vector<vdnn::DueFetch> due = stash_of(stash).fetches(reading, most);
    std::ranges::transform(due, sizes, &vdnn::DueFetch::bytes);
    std::vector<vdnn::StashHandle> named(due.size());
    std::ranges::transform(due, named.begin(), &vdnn::DueFetch::handle);
    return named;
  });
}

vdnn_status vdnn_stash_fetch(vdnn_stash* stash, vdnn_stash_handle handle, void* target, void* stream) {
  return guarded([&] {
    vdnn::TensorStash& of = stash_of(stash);
    char& first = given(static_cast<char*>(target), "target");
    of.fetch(handle, reinterpret_cast<std::uintptr_t>(&first), stream);
  });
}

vdnn_status vdnn_stash_ready(vdnn_stash* stash, vdnn_stash_handle handle, void* stream) {
  return guarded([&] { stash_of(stash).ready(handle, stream); });
}

vdnn_status vdnn_stash_drop(vdnn_stash* stash, vdnn_stash_handle handle) {
  return guarded([&] {
    vdnn_stash& of = given(stash, "stash");
    // A child process that ends drops its copies of the parent's handles, which has no effect.
    if (!of.guard.is_in_child()) {
      of.stash.drop(handle);
    }
  });
}

vdnn_status vdnn_stash_end_step(vdnn_stash* stash) {
  return guarded([&] { stash_of(stash).end_step(); });
}

vdnn_status vdnn_stash_forget(vdnn_stash* stash) {
  return guarded([&] { stash_of(stash).forget(); });
}

vdnn_status vdnn_stash_statistics_init(vdnn_stash_statistics* statistics, uint32_t version) {
  return guarded([&] {
    vdnn::check_version(version, VDNN_STASH_VERSION);
    given(statistics, "statistics") = {.version = version};
  });
}

vdnn_status vdnn_stash_get_statistics(vdnn_stash* stash, vdnn_stash_statistics* statistics) {
  return guarded([&] {
    const vdnn::TensorStash& of = stash_of(stash);
    vdnn::check_version(given(statistics, "statistics").version, VDNN_STASH_VERSION);
    *statistics = vdnn::to_c(of.statistics());
  });
}

vdnn_status vdnn_stash_learned_step(vdnn_stash* stash, char* text, uint64_t capacity, uint64_t* needed) {
  return guarded([&] {
    const vdnn::TensorStash& of = stash_of(stash);
    vdnn::give_text(text, capacity, needed, [&of] {
      std::string step = of.learned_step();
      if (step.empty()) {
        throw vdnn::InvalidArgument("the stash has learned no step yet");
      }
      return step;
    });
  });
}

vdnn_status vdnn_stash_take_notice(vdnn_stash* stash, char* text, uint64_t capacity, uint64_t* needed) {
  return guarded([&] {
    vdnn::TensorStash& of = stash_of(stash);
    vdnn::give_text(text, capacity, needed, [&of, capacity] { return of.take_notice(capacity); });
  });
}

}  // extern "C"
