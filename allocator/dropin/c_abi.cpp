#include "allocator/dropin/c_abi.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "vdnn/error.h"
#include "vdnn/pool_snapshot.h"
#include "vdnn/stream_pool.h"

struct vdnn_allocator {
  vdnn_allocator(std::unique_ptr<vdnn::PoolBackend> of, const vdnn::StreamPoolOptions& options)
      : backend(std::move(of)), pool(*backend, options) {}

  std::unique_ptr<vdnn::PoolBackend> backend;
  vdnn::StreamPool pool;
};

namespace vdnn {

namespace {

// --- failures ----------------------------------------------------------------------------------------------

// A fixed buffer, so that an error can be stored when the heap is exhausted and while a thread ends.
thread_local std::array<char, 4096> last_error{};

StreamPool& pool_of(vdnn_allocator* allocator) {
  return given(allocator, "allocator").pool;
}

// --- arguments ---------------------------------------------------------------------------------------------

vdnn_allocator_options default_options(std::uint32_t version = VDNN_ALLOCATOR_VERSION) {
  const StreamPoolOptions defaults;
  return {.version = version,
          .device = 0,
          .budget_bytes = defaults.budget_bytes,
          .high_water_bytes = defaults.high_water_bytes,
          .small_bytes = defaults.small_bytes,
          .cache_bytes = defaults.cache_bytes,
          .ends_are_told = defaults.ends_are_told ? 1U : 0U,
          .stack_traces = defaults.stack_traces ? 1U : 0U,
          .history_events = defaults.history_events,
          .name = nullptr,
          .on_exhausted = nullptr,
          .user_data = nullptr};
}

vdnn_allocator_options checked(const vdnn_allocator_options* options) {
  if (options == nullptr) {
    return default_options();
  }
  check_version(options->version, VDNN_ALLOCATOR_VERSION);
  if (options->device < 0) {
    throw InvalidArgument("there is no device " + std::to_string(options->device));
  }
  if (options->ends_are_told > 1) {
    throw InvalidArgument("ends_are_told is " + std::to_string(options->ends_are_told) + ", not 0 or 1");
  }
  if (options->stack_traces > 1) {
    throw InvalidArgument("stack_traces is " + std::to_string(options->stack_traces) + ", not 0 or 1");
  }
  return *options;
}

StreamPoolOptions pool_options(const vdnn_allocator_options& options) {
  StreamPoolOptions result{.name = options.name == nullptr ? "" : options.name,
                           .budget_bytes = options.budget_bytes,
                           .high_water_bytes = options.high_water_bytes,
                           .small_bytes = options.small_bytes,
                           .cache_bytes = options.cache_bytes,
                           .ends_are_told = options.ends_are_told == 1,
                           .history_events = options.history_events,
                           .stack_traces = options.stack_traces == 1,
                           .on_exhausted = nullptr};
  if (options.on_exhausted != nullptr) {
    result.on_exhausted = [call = options.on_exhausted, data = options.user_data](std::uint64_t bytes) {
      return call(data, bytes) != 0;
    };
  }
  return result;
}

vdnn_allocator* make_allocator(std::unique_ptr<PoolBackend> backend, const vdnn_allocator_options* options) {
  return new vdnn_allocator(std::move(backend), pool_options(checked(options)));
}

BlockLife life_of(std::uint32_t life) {
  if (life != VDNN_TRANSIENT && life != VDNN_PERSISTENT) {
    throw InvalidArgument("there is no such life of a block: " + std::to_string(life));
  }
  return life == VDNN_PERSISTENT ? BlockLife::kPersistent : BlockLife::kTransient;
}

std::uint64_t number_of(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

// --- results -----------------------------------------------------------------------------------------------

vdnn_allocator_figure to_c(const PoolFigure& figure) {
  return {.current = figure.current, .peak = figure.peak, .added = figure.added, .removed = figure.removed};
}

vdnn_allocator_figures to_c(const PoolFigures& figures) {
  return {.blocks = to_c(figures.blocks),
          .requested = to_c(figures.requested),
          .allocated = to_c(figures.allocated),
          .active = to_c(figures.active),
          .reserved = to_c(figures.reserved)};
}

vdnn_allocator_statistics to_c(const StreamPoolStatistics& statistics, std::uint32_t version) {
  return {.version = version,
          .reserved = 0,
          .all = to_c(statistics.all),
          .small_blocks = to_c(statistics.of(BlockKind::kSmall)),
          .large_blocks = to_c(statistics.of(BlockKind::kLarge)),
          .persistent_blocks = to_c(statistics.of(BlockKind::kPersistent)),
          .reused_from_cache = statistics.reused_from_cache,
          .reused_at_once = statistics.reused_at_once,
          .reused_after_wait = statistics.reused_after_wait,
          .growths = statistics.growths,
          .events_recorded = statistics.events_recorded,
          .stream_waits = statistics.stream_waits,
          .host_waits = statistics.host_waits,
          .device_waits = statistics.device_waits,
          .retries = statistics.retries,
          .failures = statistics.failures,
          .freed_unordered = statistics.freed_unordered,
          .events_held = statistics.events_held,
          .streams_tracked = statistics.streams_tracked};
}

std::size_t statistics_bytes(std::uint32_t version) {
  return version < 2 ? offsetof(vdnn_allocator_statistics, freed_unordered)
                     : sizeof(vdnn_allocator_statistics);
}

// `ask()` returns the statistics. It is called only if this library supports the version of `to`.
template <class Ask>
void give_statistics(vdnn_allocator_statistics* to, const Ask& ask) {
  const std::uint32_t version = given(to, "statistics").version;
  check_version(version, VDNN_ALLOCATOR_VERSION);
  const vdnn_allocator_statistics found = to_c(ask(), version);
  std::memcpy(to, &found, statistics_bytes(version));
}

AddressRange block_at(const StreamPool& pool, const void* address) {
  const std::optional<AddressRange> block = pool.find(number_of(address));
  if (!block) {
    throw InvalidArgument(pool.backend().properties().name +
                          ": this address is not the beginning of a block in use");
  }
  return *block;
}

void* block_or_throw(const StreamPool& pool, std::uint64_t bytes, std::optional<AddressRange> block) {
  if (!block) {
    throw OutOfMemory(pool.backend().properties().name, pool.shortage(bytes));
  }
  return pointer_to<void>(block->begin);
}

template <class Make>
vdnn_status give_text_of(vdnn_allocator* allocator, char* text, std::uint64_t capacity, std::uint64_t* needed,
                         const Make& make) noexcept {
  return guarded([&] {
    const StreamPool& pool = pool_of(allocator);
    give_text(text, capacity, needed, [&] { return make(pool); });
  });
}

// Calls free(pool, address) unless `address` is null.
template <class Free>
vdnn_status give_back(vdnn_allocator* allocator, const void* address, const Free& free) noexcept {
  return guarded([&] {
    StreamPool& pool = pool_of(allocator);
    if (address != nullptr) {
      free(pool, number_of(address));
    }
  });
}

}  // namespace

vdnn_status fail(vdnn_status status, std::string_view text) noexcept {
  const std::size_t length = text.copy(last_error.data(), last_error.size() - 1);
  last_error.at(length) = '\0';
  return status;
}

vdnn_status create_allocator(std::unique_ptr<PoolBackend> backend, const vdnn_allocator_options* options,
                             vdnn_allocator** allocator) noexcept {
  return guarded([&] {
    vdnn_allocator*& result = given(allocator, "allocator");
    given(backend.get(), "backend");
    result = make_allocator(std::move(backend), options);
  });
}

}  // namespace vdnn

using vdnn::guarded;
using vdnn::pool_of;

extern "C" {

const char* vdnn_status_name(int status) {
  switch (status) {
    case VDNN_OK:
      return "ok";
    case VDNN_OUT_OF_MEMORY:
      return "out of memory";
    case VDNN_INVALID_ARGUMENT:
      return "invalid argument";
    case VDNN_DEVICE_ERROR:
      return "device error";
    case VDNN_DEVICE_LOST:
      return "device lost";
    case VDNN_NO_HOST_MEMORY:
      return "no host memory";
    case VDNN_INTERNAL_ERROR:
      return "internal error";
  }
  return "unknown status";
}

const char* vdnn_last_error(void) {
  return vdnn::last_error.data();
}

vdnn_status vdnn_allocator_options_init(vdnn_allocator_options* options, uint32_t version) {
  return guarded([&] {
    vdnn::check_version(version, VDNN_ALLOCATOR_VERSION);
    vdnn::given(options, "options") = vdnn::default_options(version);
  });
}

vdnn_status vdnn_allocator_create(const vdnn_allocator_options* options, vdnn_allocator** allocator) {
  return guarded([&] {
    vdnn_allocator*& result = vdnn::given(allocator, "allocator");
    result = vdnn::make_allocator(vdnn::make_cuda_pool_backend(vdnn::checked(options).device), options);
  });
}

vdnn_status vdnn_allocator_destroy(vdnn_allocator* allocator) {
  return guarded([&] { delete allocator; });
}

vdnn_status vdnn_allocator_allocate(vdnn_allocator* allocator, uint64_t bytes, void* stream, uint32_t life,
                                    void** address) {
  return guarded([&] {
    vdnn::StreamPool& pool = pool_of(allocator);
    void*& result = vdnn::given(address, "address");
    result = vdnn::block_or_throw(pool, bytes, pool.allocate(bytes, stream, vdnn::life_of(life)));
  });
}

vdnn_status vdnn_allocator_allocate_ready(vdnn_allocator* allocator, uint64_t bytes, uint32_t life,
                                          void** address) {
  return guarded([&] {
    vdnn::StreamPool& pool = pool_of(allocator);
    void*& result = vdnn::given(address, "address");
    result = vdnn::block_or_throw(pool, bytes, pool.allocate_ready(bytes, vdnn::life_of(life)));
  });
}

vdnn_status vdnn_allocator_free(vdnn_allocator* allocator, void* address) {
  return vdnn::give_back(allocator, address,
                         [](vdnn::StreamPool& pool, std::uint64_t begin) { pool.free(begin); });
}

vdnn_status vdnn_allocator_free_on(vdnn_allocator* allocator, void* address, void* stream) {
  return vdnn::give_back(allocator, address,
                         [stream](vdnn::StreamPool& pool, std::uint64_t begin) { pool.free(begin, stream); });
}

vdnn_status vdnn_allocator_free_idle(vdnn_allocator* allocator, void* address) {
  return vdnn::give_back(allocator, address,
                         [](vdnn::StreamPool& pool, std::uint64_t begin) { pool.free_idle(begin); });
}

vdnn_status vdnn_allocator_free_unordered(vdnn_allocator* allocator, void* address) {
  return vdnn::give_back(allocator, address,
                         [](vdnn::StreamPool& pool, std::uint64_t begin) { pool.free_unordered(begin); });
}

vdnn_status vdnn_allocator_used_on(vdnn_allocator* allocator, void* address, void* stream) {
  return guarded([&] { pool_of(allocator).used_on(vdnn::number_of(address), stream); });
}

vdnn_status vdnn_allocator_forget_stream(vdnn_allocator* allocator, void* stream) {
  return guarded([&] { pool_of(allocator).forget(stream); });
}

vdnn_status vdnn_allocator_owns(vdnn_allocator* allocator, const void* address, int* owns) {
  return guarded([&] {
    const vdnn::StreamPool& pool = pool_of(allocator);
    vdnn::given(owns, "owns") = pool.owns(vdnn::number_of(address)) ? 1 : 0;
  });
}

vdnn_status vdnn_allocator_block_bytes(vdnn_allocator* allocator, const void* address, uint64_t* bytes) {
  return guarded([&] {
    const vdnn::StreamPool& pool = pool_of(allocator);
    std::uint64_t& result = vdnn::given(bytes, "bytes");
    result = vdnn::block_at(pool, address).bytes;
  });
}

vdnn_status vdnn_allocator_block_stream(vdnn_allocator* allocator, const void* address, void** stream,
                                        int* has_stream) {
  return guarded([&] {
    const vdnn::StreamPool& pool = pool_of(allocator);
    void*& handle = vdnn::given(stream, "stream");
    int& has_one = vdnn::given(has_stream, "has_stream");
    vdnn::block_at(pool, address);
    const std::optional<vdnn::StreamHandle> found = pool.stream_of(vdnn::number_of(address));
    handle = found.value_or(nullptr);
    has_one = found ? 1 : 0;
  });
}

vdnn_status vdnn_allocator_granule_bytes(vdnn_allocator* allocator, uint64_t* bytes) {
  return guarded([&] {
    const vdnn::StreamPool& pool = pool_of(allocator);
    vdnn::given(bytes, "bytes") = pool.backend().properties().granule_bytes;
  });
}

vdnn_status vdnn_allocator_budget_bytes(vdnn_allocator* allocator, uint64_t* bytes) {
  return guarded([&] {
    const vdnn::StreamPool& pool = pool_of(allocator);
    vdnn::given(bytes, "bytes") = pool.budget_bytes();
  });
}

vdnn_status vdnn_allocator_reserve(vdnn_allocator* allocator, uint64_t bytes) {
  return guarded([&] {
    vdnn::StreamPool& pool = pool_of(allocator);
    if (!pool.reserve(bytes)) {
      throw vdnn::OutOfMemory(pool.backend().properties().name, pool.shortage(bytes));
    }
  });
}

vdnn_status vdnn_allocator_trim(vdnn_allocator* allocator, uint64_t keep_bytes, uint64_t* released) {
  return guarded([&] {
    const std::uint64_t bytes = pool_of(allocator).trim(keep_bytes);
    if (released != nullptr) {
      *released = bytes;
    }
  });
}

vdnn_status vdnn_allocator_statistics_init(vdnn_allocator_statistics* statistics, uint32_t version) {
  return guarded([&] {
    vdnn::check_version(version, VDNN_ALLOCATOR_VERSION);
    const vdnn_allocator_statistics initial{.version = version};
    std::memcpy(&vdnn::given(statistics, "statistics"), &initial, vdnn::statistics_bytes(version));
  });
}

vdnn_status vdnn_allocator_get_statistics(vdnn_allocator* allocator, vdnn_allocator_statistics* statistics) {
  return guarded([&] {
    const vdnn::StreamPool& pool = pool_of(allocator);
    vdnn::give_statistics(statistics, [&] { return pool.statistics(); });
  });
}

vdnn_status vdnn_allocator_get_stream_statistics(vdnn_allocator* allocator, void* stream,
                                                 vdnn_allocator_statistics* statistics) {
  return guarded([&] {
    const vdnn::StreamPool& pool = pool_of(allocator);
    vdnn::give_statistics(statistics, [&] { return pool.statistics(stream); });
  });
}

vdnn_status vdnn_allocator_reset_peaks(vdnn_allocator* allocator) {
  return guarded([&] { pool_of(allocator).reset_peaks(); });
}

vdnn_status vdnn_allocator_picture(vdnn_allocator* allocator, char* text, uint64_t capacity,
                                   uint64_t* needed) {
  return vdnn::give_text_of(allocator, text, capacity, needed,
                            [](const vdnn::StreamPool& pool) { return pool.picture(); });
}

vdnn_status vdnn_allocator_snapshot(vdnn_allocator* allocator, char* text, uint64_t capacity,
                                    uint64_t* needed) {
  return vdnn::give_text_of(allocator, text, capacity, needed, vdnn::pool_snapshot_json);
}

vdnn_status vdnn_allocator_torch_snapshot(vdnn_allocator* allocator, uint32_t device, char* text,
                                          uint64_t capacity, uint64_t* needed) {
  return vdnn::give_text_of(allocator, text, capacity, needed, [device](const vdnn::StreamPool& pool) {
    return vdnn::torch_snapshot_json(pool, device);
  });
}

}  // extern "C"
