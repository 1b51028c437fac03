#include "allocator/dropin/preload/preload.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <fstream>
#include <limits>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "allocator/dropin/preload/driver_runtime.h"
#include "streams/cuda/cuda_pool_backend.h"
#include "streams/cuda/cuda_runtime_table.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn::preload {

namespace {

constexpr std::array<const char*, kCalls> kNames{
    "cudaMalloc",  "cudaFree", "cudaMallocAsync", "cudaFreeAsync", "cudaMallocHost, cudaHostAlloc",
    "cudaFreeHost"};

std::uint64_t address_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

void say(const char* text) {
  std::fprintf(stderr, "vdnn preload: %s\n", text);
}

// Calls `work()` and ignores its failure: the program can do without this work.
template <class Work>
void attempt(const Work& work) {
  try {
    work();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
  }
}

}  // namespace

Gpu::Gpu(const NextRuntime& next_, int ordinal_, std::unique_ptr<PoolBackend> backend_,
         const StreamPoolOptions& options)
    : next(next_), ordinal(ordinal_), backend(std::move(backend_)), pool(*backend, options) {}

void Gpu::put_off(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  if (!pool.find(address) || !put_off_.emplace(address, ++last_put_off_).second) {
    throw InvalidArgument("no block in use begins there");
  }
  has_put_off_ = true;
}

bool Gpu::is_put_off(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  return put_off_.contains(address);
}

cudaError_t Gpu::synchronize() {
  std::uint64_t last = 0;
  if (has_put_off_) {
    const std::lock_guard lock(mutex_);
    last = last_put_off_;
  }
  const cudaError_t error = next.cudaDeviceSynchronize();
  if (error != cudaSuccess || last == 0) {
    return error;
  }
  // Blocks that were put off after the wait began stay put off, since the wait does not cover all work on
  // them. This includes blocks that were freed, reused and put off again.
  const std::lock_guard lock(mutex_);
  std::erase_if(put_off_, [&](const auto& block) { return block.second <= last && free_idle(block.first); });
  has_put_off_ = !put_off_.empty();
  return error;
}

bool Gpu::free_idle(std::uint64_t address) {
  try {
    pool.free_idle(address);
  } catch (const std::bad_alloc&) {
    return false;
  } catch (const std::exception&) {
    return true;  // the block is not in use
  }
  return true;
}

Pools::Pools(const Settings& settings_) : settings(settings_), host(settings_.host_cache_bytes) {}

// --- pools -------------------------------------------------------------------------------------------------

std::shared_ptr<Gpu> Preload::existing_gpu() {
  const int mine = gpu_of_thread(next_);
  const std::shared_lock lock(pools_.mutex);
  const auto it = pools_.gpus.find(mine);
  return it == pools_.gpus.end() ? nullptr : it->second;
}

std::shared_ptr<Gpu> Preload::gpu(int ordinal) {
  {
    const std::shared_lock lock(pools_.mutex);
    if (pools_.finished || !pools_.settings.pooled || ordinal < 0) {
      return nullptr;
    }
    if (const auto it = pools_.gpus.find(ordinal); it != pools_.gpus.end()) {
      return it->second;
    }
  }
  attempt([this] { cuda(); });  // before the lock, since it calls the loader
  const std::unique_lock lock(pools_.mutex);
  if (pools_.finished) {
    return nullptr;  // finish() was called meanwhile: nothing would destroy this pool
  }
  const auto it = pools_.gpus.find(ordinal);
  return it == pools_.gpus.end() ? pools_.gpus.emplace(ordinal, make_gpu(ordinal)).first->second : it->second;
}

std::shared_ptr<Gpu> Preload::make_gpu(int ordinal) {
  try {
    // By default, the budget is all memory of the GPU, not only the free memory: other processes may free
    // memory later.
    std::size_t free = 0;
    std::size_t total = 0;
    if (const cudaError_t error = on_gpu(next_, ordinal, [&] { return next_.cudaMemGetInfo(&free, &total); });
        error != cudaSuccess) {
      next_.cudaGetLastError();
      throw DeviceError("cudaMemGetInfo: error " + std::to_string(error));
    }
    std::unique_ptr<PoolBackend> backend = make_cuda_pool_backend(
        ordinal, cuda(),
        {.peer_access = pools_.settings.peers, .is_capturing_any = [this] { return any_capture(); }});
    if (!backend->properties().maps && pools_.settings.memory_bytes == 0) {
      throw DeviceError(
          "the GPU has no virtual memory management, so a pool allocates all its memory at once: "
          "set VDNN_PRELOAD_MEMORY to its size");
    }
    return std::make_shared<Gpu>(
        next_, ordinal, std::move(backend),
        StreamPoolOptions{.budget_bytes =
                              pools_.settings.memory_bytes == 0 ? total : pools_.settings.memory_bytes});
  } catch (const std::exception& error) {
    say(("no pool for GPU " + std::to_string(ordinal) + ", its memory is CUDA's: " + error.what()).c_str());
    return nullptr;
  }
}

std::shared_ptr<Gpu> Pools::owner(std::uint64_t address) {
  const std::shared_lock lock(mutex);
  for (const auto& [ordinal, gpu] : gpus) {
    if (gpu && gpu->pool.owns(address)) {
      return gpu;
    }
  }
  return nullptr;
}

cudaError_t Preload::pass(Call call, cudaError_t result) {
  ++pools_.counts[static_cast<std::size_t>(call)].passed;
  return result;
}

cudaError_t Preload::refuse() const {
  if (next_.is_driver) {
    return cudaErrorMemoryAllocation;  // the program's runtime sets its last error
  }
  return beside_captures([this] {
    void* nothing = nullptr;
    return next_.cudaMalloc(&nothing, std::numeric_limits<std::size_t>::max() / 2);
  });
}

template <class Work>
cudaError_t Preload::beside_captures(const Work& work) const {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  if (const cudaError_t error = next_.cudaThreadExchangeStreamCaptureMode(&mode); error != cudaSuccess) {
    return error;
  }
  const cudaError_t result = work();
  next_.cudaThreadExchangeStreamCaptureMode(&mode);
  return result;
}

int Preload::gpu_of_stream(cudaStream_t stream) {
  const bool is_default = address_of(stream) <= address_of(cudaStreamPerThread);
  if (!is_default && gpus_ == 0) {
    int count = 0;
    gpus_ = next_.cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
  }
  if (is_default || gpus_ == 1) {
    return gpu_of_thread(next_);
  }
  return preload::gpu_of_stream(next_, stream);
}

std::optional<bool> Preload::is_captured(cudaStream_t stream) const {
  cudaStreamCaptureStatus answer = cudaStreamCaptureStatusNone;
  const cudaError_t error = next_.cudaStreamIsCapturing(stream, &answer);
  if (error == cudaSuccess) {
    return answer != cudaStreamCaptureStatusNone;
  }
  next_.cudaGetLastError();
  // CUDA returns this error for the legacy stream while a blocking stream is captured: work on the legacy
  // stream would wait for the captured stream. So calls with this stream are passed on, and CUDA reports the
  // error to the program.
  return error == cudaErrorStreamCaptureImplicit ? std::optional(true) : std::nullopt;
}

bool Preload::goes_on(const NamedStream& stream) {
  if (stream.is_of_thread() && !stream.is(named(stream.handle))) {
    return true;
  }
  cudaStreamCaptureStatus answer = cudaStreamCaptureStatusNone;
  const cudaError_t error = next_.cudaStreamIsCapturing(stream.handle, &answer);
  if (error == cudaSuccess) {
    return answer != cudaStreamCaptureStatusNone;
  }
  next_.cudaGetLastError();
  return error != cudaErrorInvalidResourceHandle && error != cudaErrorContextIsDestroyed;
}

bool Preload::any_capture() {
  return pools_.captures.any([this](const NamedStream& stream) { return goes_on(stream); });
}

bool Preload::may_synchronize() {
  return !any_capture() && !is_captured(cudaStreamLegacy).value_or(false);
}

// --- memory of the device ----------------------------------------------------------------------------------

template <class Take, class Pass>
cudaError_t Preload::allocate_from_pool(Call call, int ordinal, void** address, const Take& take,
                                        const Pass& pass_on) {
  ++pools_.counts[static_cast<std::size_t>(call)].made;
  try {
    const std::shared_ptr<Gpu> mine = gpu(ordinal);
    if (!mine) {
      return pass(call, pass_on());
    }
    std::optional<AddressRange> range = take(mine->pool);
    if (!range && mine->has_put_off() && synchronize(*mine)) {
      range = take(mine->pool);
    }
    if (!range) {
      return refuse();
    }
    *address = reinterpret_cast<void*>(range->begin);  // NOLINT(performance-no-int-to-ptr)
    return cudaSuccess;
  } catch (const std::exception&) {
    return pass(call, pass_on());
  }
}

bool Preload::synchronize(Gpu& gpu) {
  const auto work = [&] { return may_synchronize() ? gpu.synchronize() : cudaErrorStreamCaptureUnsupported; };
  return on_gpu(next_, gpu.ordinal, work) == cudaSuccess;
}

cudaError_t Preload::allocate(void** address, std::size_t bytes) {
  const auto pass_on = [&] { return with_memory([&] { return next_.cudaMalloc(address, bytes); }); };
  if (address == nullptr || bytes == 0 || pools_.settings.ipc) {
    return pass_on();
  }
  return allocate_from_pool(
      Call::kMalloc, gpu_of_thread(next_), address,
      [&](StreamPool& pool) {
        return pools_.settings.ordered_free ? pool.allocate(bytes, nullptr) : pool.allocate_ready(bytes);
      },
      pass_on);
}

cudaError_t Preload::allocate(void** address, std::size_t bytes, cudaStream_t stream) {
  const auto pass_on = [&] {
    return with_memory([&] { return next_.cudaMallocAsync(address, bytes, stream); });
  };
  if (address == nullptr || bytes == 0 || is_captured(stream).value_or(true)) {
    return pass_on();
  }
  return allocate_from_pool(
      Call::kMallocAsync, gpu_of_stream(stream), address,
      [&](StreamPool& pool) { return pool.allocate(bytes, stream); }, pass_on);
}

template <class Give, class Pass>
cudaError_t Preload::free_to_pool(Call call, void* address, const Give& give, const Pass& pass_on) {
  if (address == nullptr) {
    return pass_on();
  }
  ++pools_.counts[static_cast<std::size_t>(call)].made;
  std::shared_ptr<Gpu> mine = pools_.owner(address_of(address));
  if (!mine) {
    return pass(call, pass_on());
  }
  return on_gpu(next_, mine->ordinal, [&]() -> cudaError_t {
    const std::shared_ptr<Gpu> here = std::move(mine);  // may be the last reference to the GPU
    try {
      return give(*here);
    } catch (const CaptureConflict&) {
      return free_unordered(here->pool, address_of(address));
    } catch (const InvalidArgument&) {
      return pass_on();  // CUDA reports the program's mistake
    } catch (const std::exception&) {
      return cudaErrorUnknown;  // nothing has changed
    }
  });
}

// The host waits, since the pool orders only streams of its own GPU.
cudaError_t Preload::free_after(Gpu& gpu, std::uint64_t address, int ordinal, cudaStream_t stream) {
  if (!gpu.pool.find(address)) {
    throw InvalidArgument("no block in use begins there");
  }
  const cudaError_t error = on_gpu(
      next_, ordinal, [&] { return beside_captures([&] { return next_.cudaStreamSynchronize(stream); }); });
  if (error == cudaSuccess) {
    gpu.pool.free_idle(address);
  }
  return error;
}

// Frees a block when a capture forbids recording an event on the stream of the free.
cudaError_t Preload::free_unordered(StreamPool& pool, std::uint64_t address) noexcept {
  try {
    pool.free_unordered(address);
    return cudaSuccess;
  } catch (const std::exception&) {
    return cudaErrorUnknown;  // nothing has changed
  }
}

cudaError_t Preload::free(void* address) {
  return free_to_pool(
      Call::kFree, address,
      [&](Gpu& gpu) {
        if (pools_.settings.ordered_free) {
          gpu.pool.free(address_of(address));
          return cudaSuccess;
        }
        if (!may_synchronize()) {
          gpu.put_off(address_of(address));
          return cudaSuccess;
        }
        const cudaError_t error = gpu.synchronize();
        if (error == cudaSuccess) {
          gpu.pool.free_idle(address_of(address));
        }
        return error;
      },
      [&] { return next_.cudaFree(address); });
}

cudaError_t Preload::free(void* address, cudaStream_t stream) {
  if (is_captured(stream).value_or(false)) {
    return next_.cudaFreeAsync(address, stream);
  }
  const int ordinal = gpu_of_stream(stream);
  return free_to_pool(
      Call::kFreeAsync, address,
      [&](Gpu& gpu) {
        if (gpu.has_put_off() && gpu.is_put_off(address_of(address))) {
          throw InvalidArgument("the block was freed already");
        }
        if (ordinal >= 0 && ordinal != gpu.ordinal) {
          return free_after(gpu, address_of(address), ordinal, stream);
        }
        gpu.pool.free(address_of(address), stream);
        return cudaSuccess;
      },
      [&] { return next_.cudaFreeAsync(address, stream); });
}

bool Preload::give_back_kept() noexcept {
  bool any = false;
  attempt([&] {
    const int mine = gpu_of_thread(next_);
    for (std::shared_ptr<Gpu>& gpu : pooled_gpus()) {
      if (mine >= 0 && gpu->ordinal != mine) {
        continue;
      }
      if (gpu->has_put_off()) {
        synchronize(*gpu);
      }
      on_gpu(next_, gpu->ordinal, [&] {
        const std::shared_ptr<Gpu> here = std::move(gpu);
        attempt([&] { any = here->pool.trim() > 0 || any; });
        return cudaSuccess;
      });
    }
  });
  return any;
}

cudaError_t Preload::memory_info(std::size_t* free, std::size_t* total) {
  const cudaError_t error = next_.cudaMemGetInfo(free, total);
  if (error != cudaSuccess || free == nullptr || total == nullptr) {
    return error;
  }
  std::uint64_t allocated = 0;
  if (const std::shared_ptr<Gpu> mine = existing_gpu()) {
    const PoolFigures figures = mine->pool.statistics().all;
    *free += figures.reserved.current - figures.allocated.current;
    allocated = figures.allocated.current;
  }
  if (pools_.settings.memory_bytes != 0) {
    *free = std::min<std::size_t>(*free, pools_.settings.memory_bytes - allocated);
    *total = std::min<std::size_t>(*total, pools_.settings.memory_bytes);
  }
  return cudaSuccess;
}

cudaError_t Preload::ipc_handle(cudaIpcMemHandle_t* handle, void* address) {
  if (pools_.owner(address_of(address)) && !pools_.ipc_refused.exchange(true)) {
    say("cudaIpcGetMemHandle: memory of a pool is mapped by granules and cannot be shared with other "
        "processes; set VDNN_PRELOAD_IPC=1 so that memory of cudaMalloc can");
  }
  return next_.cudaIpcGetMemHandle(handle, address);
}

// --- page-locked memory ------------------------------------------------------------------------------------

void Preload::release_host_memory(std::optional<int> ordinal) {
  while (const std::optional<HostMemory> kept = pools_.host.release(ordinal)) {
    bool tried = false;
    const auto free = [&] {
      tried = true;
      return next_.cudaFreeHost(kept->address);
    };
    on_gpu(next_, kept->block.ordinal, free);
    if (!tried) {
      free();
    }
  }
}

cudaError_t Preload::allocate_host(void** address, std::size_t bytes, unsigned flags) {
  const HostBlock block{.ordinal = gpu_of_thread(next_), .flags = flags, .bytes = bytes};
  const auto pass_on = [&] { return next_.cudaHostAlloc(address, bytes, flags); };
  if (address == nullptr || bytes == 0 || block.ordinal < 0 || pools_.settings.host_cache_bytes == 0) {
    return pass_on();
  }
  ++pools_.counts[static_cast<std::size_t>(Call::kHostAlloc)].made;
  if (void* const kept = pools_.host.take(block); kept != nullptr) {
    *address = kept;
    return cudaSuccess;
  }
  cudaError_t error = pass(Call::kHostAlloc, pass_on());
  if (error == cudaErrorMemoryAllocation) {
    release_host_memory();
    next_.cudaGetLastError();
    error = pass_on();
  }
  if (error == cudaSuccess) {
    attempt([&] { pools_.host.add(*address, block); });  // if that fails, free_host() will call the runtime
  }
  return error;
}

std::shared_ptr<CudaApi> Preload::cuda() {
  {
    const std::lock_guard lock(cuda_mutex_);
    if (cuda_) {
      return cuda_;
    }
  }
  // Without the lock, since it calls the loader: see look_up.cpp.
  std::shared_ptr<CudaApi> made = cuda::make_cuda_api(cuda::RuntimeSymbols(next_.find));
  if (const std::string missing = made->why_missing(); !missing.empty()) {
    throw DeviceError(missing);
  }
  const std::lock_guard lock(cuda_mutex_);
  if (!cuda_) {
    cuda_ = std::move(made);
  }
  return cuda_;
}

bool Preload::synchronize_used() {
  const std::shared_ptr<CudaApi> asked = cuda();
  const auto synchronize = [this] {
    return may_synchronize() ? next_.cudaDeviceSynchronize() : cudaErrorStreamCaptureUnsupported;
  };
  int count = 0;
  bool done = asked->device_count(count) == CudaStatus::kSuccess;
  for (int each = 0; done && each < count; ++each) {
    bool used = false;
    done = asked->context_is_active(used, each) == CudaStatus::kSuccess &&
           (!used || on_gpu(next_, each, synchronize) == cudaSuccess);
  }
  return done;
}

cudaError_t Preload::free_host(void* address) {
  if (!pools_.host.is_in_use(address)) {
    return next_.cudaFreeHost(address);
  }
  ++pools_.counts[static_cast<std::size_t>(Call::kFreeHost)].made;
  bool idle = false;
  attempt([&] { idle = synchronize_used(); });
  return pools_.host.give(address, !idle) ? cudaSuccess : pass(Call::kFreeHost, next_.cudaFreeHost(address));
}

// --- streams and devices -----------------------------------------------------------------------------------

std::vector<std::shared_ptr<Gpu>> Preload::pooled_gpus() {
  std::vector<std::shared_ptr<Gpu>> pooled;
  const std::shared_lock lock(pools_.mutex);
  for (const auto& [ordinal, gpu] : pools_.gpus) {
    if (gpu) {
      pooled.push_back(gpu);
    }
  }
  return pooled;
}

// A failure to tell the pools is harmless: they detect later that the stream has gone. Returns the runtime's
// result.
cudaError_t Preload::destroy_stream(cudaStream_t stream) {
  attempt([&] {
    for (std::shared_ptr<Gpu>& gpu : pooled_gpus()) {
      on_gpu(next_, gpu->ordinal, [&] {
        const std::shared_ptr<Gpu> here = std::move(gpu);
        attempt([&] { here->pool.forget(stream); });
        return cudaSuccess;
      });
    }
  });
  const NamedStream name = named(stream);
  const std::uint64_t last = pools_.captures.last();
  const cudaError_t error = next_.cudaStreamDestroy(stream);
  if (error == cudaSuccess) {
    pools_.captures.end(name, last);
  }
  return error;
}

cudaError_t Preload::begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return begin_capture(stream, [&] { return next_.cudaStreamBeginCapture(stream, mode); });
}

// A failed call ends the capture, too, unless CUDA does not let this stream or this thread end it.
cudaError_t Preload::end_capture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::uint64_t last = pools_.captures.last();
  const cudaError_t error = next_.cudaStreamEndCapture(stream, graph);
  if (error == cudaSuccess || !is_captured(stream).value_or(true)) {
    pools_.captures.end(named(stream), last);
  }
  return error;
}

void Preload::end(std::shared_ptr<Gpu> gpu) {
  if (gpu) {
    on_gpu(gpu->next, gpu->ordinal, [&] {
      gpu.reset();
      return cudaSuccess;
    });
  }
}

// Ends the captures, since they forbid waiting for the GPU. CUDA may refuse to end captures of other
// threads.
void Preload::end_captures(int ordinal) {
  if (ordinal < 0) {
    return;  // the thread's context is not a primary one, so the reset ends no captures
  }
  while (const std::optional<NamedStream> stream = pools_.captures.take(ordinal)) {
    on_gpu(next_, ordinal, [&] {
      cudaGraph_t graph = nullptr;
      const cudaError_t error = next_.cudaStreamEndCapture(stream->handle, &graph);
      if (error != cudaSuccess) {
        next_.cudaGetLastError();
      }
      return graph == nullptr ? error : next_.cudaGraphDestroy(graph);
    });
  }
}

void Preload::forget_device(int ordinal) {
  std::shared_ptr<Gpu> gone;
  {
    const std::unique_lock lock(pools_.mutex);
    if (const auto it = pools_.gpus.find(ordinal); it != pools_.gpus.end()) {
      gone = std::move(it->second);
      pools_.gpus.erase(it);
    }
  }
  end_captures(ordinal);
  end(std::move(gone));
  release_host_memory(ordinal);
  pools_.host.forget(ordinal);
  if (driver() != nullptr) {
    forget_primary_context(ordinal);
  }
}

// In a context other than the primary one, cudaDeviceReset() does not reset the GPU (CUDA Runtime API).
cudaError_t Preload::reset_device() {
  forget_device(gpu_of_thread(next_));
  return next_.cudaDeviceReset();
}

// --- the end -----------------------------------------------------------------------------------------------

namespace {

std::string summary(const Gpu& gpu) {
  const StreamPoolStatistics figures = gpu.pool.statistics();
  return "vdnn preload: GPU " + std::to_string(gpu.ordinal) + ": at most " +
         format_size(figures.all.allocated.peak) + " in use, " + format_size(figures.all.reserved.peak) +
         " reserved; " + std::to_string(figures.all.blocks.current) + " blocks not given back, " +
         std::to_string(figures.stream_waits) + " waits of streams, " + std::to_string(figures.host_waits) +
         " of the host, " + std::to_string(figures.failures) + " refused\n";
}

std::string summary(const Pools& pools) {
  std::string text;
  for (std::size_t i = 0; i < kCalls; ++i) {
    text += std::string("vdnn preload: ") + kNames[i] + ": " + std::to_string(pools.counts[i].made) +
            " calls, " + std::to_string(pools.counts[i].passed) + " passed on\n";
  }
  text += "vdnn preload: " + std::to_string(pools.looked_up) + " functions looked up in the driver\n";
  for (const auto& [ordinal, gpu] : pools.gpus) {
    text += gpu ? summary(*gpu) : "";
  }
  return text;
}

void write_summary(const Pools& pools) {
  if (pools.settings.summary == "1") {
    std::fputs(summary(pools).c_str(), stderr);
  } else if (!pools.settings.summary.empty()) {
    std::ofstream(pools.settings.summary) << summary(pools);
  }
}

// An object that is never destroyed. It does not use the heap, which may be exhausted: without a Preload,
// calls could not even be passed on.
template <class Type>
class Undying {
 public:
  // Makes the object, or returns it if it exists.
  template <class... Arguments>
  Type* make(Arguments&&... arguments) {
    Place& place = places_[is_second_ ? 1 : 0];
    const std::lock_guard lock(place.mutex);
    if (place.made == nullptr) {
      place.made = new (place.bytes.data()) Type(std::forward<Arguments>(arguments)...);
    }
    return place.made;
  }
  Type* made() const { return places_[is_second_ ? 1 : 0].made; }
  // Abandons the object without destroying it: made() returns null until make() makes a second object.
  // Further calls of leave() do nothing.
  void leave() { is_second_ = true; }

 private:
  struct Place {
    alignas(Type) std::array<std::byte, sizeof(Type)> bytes{};
    std::mutex mutex;
    std::atomic<Type*> made = nullptr;
  };

  std::array<Place, 2> places_;
  std::atomic<bool> is_second_{false};
};

Undying<Pools>& the_pools() {
  static Undying<Pools> pools;
  return pools;
}

Undying<Preload>& runtime_preload() {
  static Undying<Preload> preload;
  return preload;
}

Undying<Preload>& driver_preload() {
  static Undying<Preload> preload;
  return preload;
}

// In a child of fork() CUDA must not be used, threads that do not exist there may hold locks, and only the
// parent may free the parent's memory. So calls of the child are passed on to CUDA, which refuses them.
std::atomic<bool> is_child{false};

void leave_to_parent() {
  if (runtime_preload().made() == nullptr && driver_preload().made() == nullptr) {
    return;  // the parent has not used CUDA, so the child may
  }
  is_child = true;
  the_pools().leave();
  runtime_preload().leave();
  driver_preload().leave();
}

Settings settings_or_none() {
  if (is_child) {
    return {.pooled = false, .host_cache_bytes = 0};
  }
  pthread_atfork(nullptr, nullptr, leave_to_parent);
  try {
    return read_settings();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "vdnn preload: %s; all memory is CUDA's\n", error.what());
    return {.pooled = false, .host_cache_bytes = 0};
  }
}

Preload* make_preload(Undying<Preload>& place, NextRuntime (*find_next)()) {
  if (Preload* const made = place.made(); made != nullptr) {
    return made;
  }
  try {
    const NextRuntime next = find_next();  // calls the loader, see look_up.cpp
    return place.make(next, Pools::instance());
  } catch (const std::exception& error) {
    static std::atomic_flag said;
    if (!said.test_and_set()) {
      say(error.what());
    }
    return nullptr;
  }
}

}  // namespace

Pools& Pools::instance() {
  Pools* const made = the_pools().made();
  return made == nullptr ? *the_pools().make(settings_or_none()) : *made;
}

Pools* Pools::existing() {
  return the_pools().made();
}

Preload* Preload::of_runtime() {
  return make_preload(runtime_preload(), find_next_runtime);
}

Preload* Preload::of_driver() {
  return make_preload(driver_preload(), make_driver_runtime);
}

void Preload::finish() noexcept {
  Pools* const pools = Pools::existing();
  if (pools == nullptr) {
    return;
  }
  std::map<int, std::shared_ptr<Gpu>> ended;
  {
    const std::unique_lock lock(pools->mutex);
    if (!std::exchange(pools->finished, true)) {
      attempt([&] { write_summary(*pools); });
    }
    ended.swap(pools->gpus);
  }
  for (auto& [ordinal, gpu] : ended) {
    end(std::move(gpu));
  }
  Preload* const behind_runtime = runtime_preload().made();
  if (Preload* const any = behind_runtime == nullptr ? driver_preload().made() : behind_runtime;
      any != nullptr) {
    any->release_host_memory();
  }
}

}  // namespace vdnn::preload
