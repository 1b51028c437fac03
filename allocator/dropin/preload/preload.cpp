#include "allocator/dropin/preload/preload.h"

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

// What the program can do without.
template <class Work>
void attempt(const Work& work) {
  try {
    work();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
  }
}

}  // namespace

Preload::Gpu::Gpu(int ordinal_, std::unique_ptr<PoolBackend> backend_, const StreamPoolOptions& options)
    : ordinal(ordinal_), backend(std::move(backend_)), pool(*backend, options) {}

Preload::Preload(NextRuntime next, const Settings& settings)
    : next_(next), settings_(settings), host_(settings.host_cache_bytes) {}

// --- pools -------------------------------------------------------------------------------------------------

int Preload::ordinal() const {
  int found = -1;
  return next_.cudaGetDevice(&found) == cudaSuccess ? found : -1;
}

std::shared_ptr<Preload::Gpu> Preload::existing_gpu() {
  const int mine = ordinal();
  const std::shared_lock lock(mutex_);
  const auto it = gpus_.find(mine);
  return it == gpus_.end() ? nullptr : it->second;
}

std::shared_ptr<Preload::Gpu> Preload::gpu() {
  const int mine = ordinal();
  {
    const std::shared_lock lock(mutex_);
    if (finished_ || !settings_.pooled || mine < 0) {
      return nullptr;
    }
    if (const auto it = gpus_.find(mine); it != gpus_.end()) {
      return it->second;
    }
  }
  const std::unique_lock lock(mutex_);
  if (finished_) {
    return nullptr;  // meanwhile: nobody would end this pool
  }
  const auto it = gpus_.find(mine);
  return it == gpus_.end() ? gpus_.emplace(mine, make_gpu(mine)).first->second : it->second;
}

std::shared_ptr<Preload::Gpu> Preload::make_gpu(int ordinal) {
  try {
    // All of the GPU's, since what others take of it now they may give back.
    std::size_t free = 0;
    std::size_t total = 0;
    if (const cudaError_t error = next_.cudaMemGetInfo(&free, &total); error != cudaSuccess) {
      next_.cudaGetLastError();
      throw DeviceError("cudaMemGetInfo: error " + std::to_string(error));
    }
    std::unique_ptr<PoolBackend> backend = make_cuda_pool_backend(ordinal);
    if (!backend->properties().maps && settings_.memory_bytes == 0) {
      throw DeviceError(
          "it has no virtual memory management, so that a pool takes all its memory at once: "
          "VDNN_PRELOAD_MEMORY "
          "must say how much");
    }
    return std::make_shared<Gpu>(
        ordinal, std::move(backend),
        StreamPoolOptions{.budget_bytes = settings_.memory_bytes == 0 ? total : settings_.memory_bytes});
  } catch (const std::exception& error) {
    say(("no pool for GPU " + std::to_string(ordinal) + ", its memory is CUDA's: " + error.what()).c_str());
    return nullptr;
  }
}

std::shared_ptr<Preload::Gpu> Preload::owner(const void* address) {
  const std::shared_lock lock(mutex_);
  for (const auto& [ordinal, gpu] : gpus_) {
    if (gpu && gpu->pool.owns(address_of(address))) {
      return gpu;
    }
  }
  return nullptr;
}

template <class Work>
cudaError_t Preload::on(int ordinal, const Work& work) const {
  int before = 0;
  if (const cudaError_t error = next_.cudaGetDevice(&before); error != cudaSuccess) {
    return error;
  }
  if (before == ordinal) {
    return work();
  }
  if (const cudaError_t error = next_.cudaSetDevice(ordinal); error != cudaSuccess) {
    return error;
  }
  const cudaError_t result = work();
  const cudaError_t back = next_.cudaSetDevice(before);
  return result == cudaSuccess ? back : result;
}

cudaError_t Preload::pass(Call call, cudaError_t result) {
  ++counts_[static_cast<std::size_t>(call)].passed;
  return result;
}

cudaError_t Preload::refuse() const {
  void* nothing = nullptr;
  return next_.cudaMalloc(&nothing, std::numeric_limits<std::size_t>::max() / 2);
}

// --- memory of the device ----------------------------------------------------------------------------------

template <class Take, class Pass>
cudaError_t Preload::allocate_from_pool(Call call, void** address, const Take& take, const Pass& pass_on) {
  ++counts_[static_cast<std::size_t>(call)].made;
  try {
    const std::shared_ptr<Gpu> mine = gpu();
    if (!mine) {
      return pass(call, pass_on());
    }
    const std::optional<AddressRange> range = take(mine->pool);
    if (!range) {
      return refuse();
    }
    *address = reinterpret_cast<void*>(range->begin);  // NOLINT(performance-no-int-to-ptr)
    return cudaSuccess;
  } catch (const std::exception&) {
    return pass(call, pass_on());
  }
}

cudaError_t Preload::allocate(void** address, std::size_t bytes) {
  const auto pass_on = [&] { return next_.cudaMalloc(address, bytes); };
  if (address == nullptr || bytes == 0 || settings_.ipc) {
    return pass_on();
  }
  return allocate_from_pool(
      Call::kMalloc, address,
      [&](StreamPool& pool) {
        return settings_.ordered_free ? pool.allocate(bytes, nullptr) : pool.allocate_ready(bytes);
      },
      pass_on);
}

cudaError_t Preload::allocate(void** address, std::size_t bytes, cudaStream_t stream) {
  const auto pass_on = [&] { return next_.cudaMallocAsync(address, bytes, stream); };
  if (address == nullptr || bytes == 0) {
    return pass_on();
  }
  return allocate_from_pool(
      Call::kMallocAsync, address, [&](StreamPool& pool) { return pool.allocate(bytes, stream); }, pass_on);
}

template <class Give, class Pass>
cudaError_t Preload::free_to_pool(Call call, void* address, const Give& give, const Pass& pass_on) {
  if (address == nullptr) {
    return pass_on();
  }
  ++counts_[static_cast<std::size_t>(call)].made;
  const std::shared_ptr<Gpu> mine = owner(address);
  if (!mine) {
    return pass(call, pass_on());
  }
  try {
    return give(*mine);
  } catch (const InvalidArgument&) {
    return pass_on();  // the runtime tells what the program has done wrong in its own words
  } catch (const std::exception&) {
    return cudaErrorUnknown;  // nothing has changed
  }
}

cudaError_t Preload::free(void* address) {
  return free_to_pool(
      Call::kFree, address,
      [&](Gpu& gpu) {
        if (settings_.ordered_free) {
          gpu.pool.free(address_of(address));
          return cudaSuccess;
        }
        const cudaError_t error = on(gpu.ordinal, [this] { return next_.cudaDeviceSynchronize(); });
        if (error == cudaSuccess) {
          gpu.pool.free_idle(address_of(address));
        }
        return error;
      },
      [&] { return next_.cudaFree(address); });
}

cudaError_t Preload::free(void* address, cudaStream_t stream) {
  return free_to_pool(
      Call::kFreeAsync, address,
      [&](Gpu& gpu) {
        gpu.pool.free(address_of(address), stream);
        return cudaSuccess;
      },
      [&] { return next_.cudaFreeAsync(address, stream); });
}

cudaError_t Preload::memory_info(std::size_t* free, std::size_t* total) {
  if (const cudaError_t error = next_.cudaMemGetInfo(free, total); error != cudaSuccess) {
    return error;
  }
  std::uint64_t allocated = 0;
  if (const std::shared_ptr<Gpu> mine = existing_gpu()) {
    const PoolFigures figures = mine->pool.statistics().all;
    *free += figures.reserved.current - figures.allocated.current;
    allocated = figures.allocated.current;
  }
  if (settings_.memory_bytes != 0) {
    *free = std::min<std::size_t>(*free, settings_.memory_bytes - allocated);
    *total = std::min<std::size_t>(*total, settings_.memory_bytes);
  }
  return cudaSuccess;
}

cudaError_t Preload::ipc_handle(cudaIpcMemHandle_t* handle, void* address) {
  if (owner(address) && !ipc_refused_.exchange(true)) {
    say("cudaIpcGetMemHandle: memory of a pool is mapped by granules and cannot be shared with other "
        "processes; "
        "with VDNN_PRELOAD_IPC=1 cudaMalloc gives memory that can");
  }
  return next_.cudaIpcGetMemHandle(handle, address);
}

// --- page-locked memory ------------------------------------------------------------------------------------

void Preload::release_host_memory() {
  while (void* const kept = host_.release()) {
    next_.cudaFreeHost(kept);
  }
}

cudaError_t Preload::allocate_host(void** address, std::size_t bytes, unsigned flags) {
  const HostBlock block{.ordinal = ordinal(), .flags = flags, .bytes = bytes};
  const auto pass_on = [&] { return next_.cudaHostAlloc(address, bytes, flags); };
  if (address == nullptr || bytes == 0 || settings_.host_cache_bytes == 0) {
    return pass_on();
  }
  ++counts_[static_cast<std::size_t>(Call::kHostAlloc)].made;
  if (void* const kept = host_.take(block); kept != nullptr) {
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
    attempt([&] { host_.add(*address, block); });  // else the runtime takes it back
  }
  return error;
}

CudaApi& Preload::cuda() {
  const std::lock_guard lock(cuda_mutex_);
  if (!cuda_) {
    std::unique_ptr<CudaApi> made = make_cuda_api();
    if (const std::string missing = made->why_missing(); !missing.empty()) {
      throw DeviceError(missing);
    }
    cuda_ = std::move(made);
  }
  return *cuda_;
}

bool Preload::synchronize_used() {
  CudaApi& asked = cuda();
  int count = 0;
  bool done = asked.device_count(count) == CudaStatus::kSuccess;
  for (int each = 0; done && each < count; ++each) {
    bool used = false;
    done = asked.context_is_active(used, each) == CudaStatus::kSuccess &&
           (!used || on(each, next_.cudaDeviceSynchronize) == cudaSuccess);
  }
  return done;
}

cudaError_t Preload::free_host(void* address) {
  if (!host_.is_in_use(address)) {
    return next_.cudaFreeHost(address);
  }
  ++counts_[static_cast<std::size_t>(Call::kFreeHost)].made;
  bool idle = false;
  attempt([&] { idle = synchronize_used(); });
  return host_.give(address, !idle) ? cudaSuccess : pass(Call::kFreeHost, next_.cudaFreeHost(address));
}

// --- streams and devices -----------------------------------------------------------------------------------

std::vector<std::shared_ptr<Preload::Gpu>> Preload::pooled_gpus() {
  std::vector<std::shared_ptr<Gpu>> pooled;
  const std::shared_lock lock(mutex_);
  for (const auto& [ordinal, gpu] : gpus_) {
    if (gpu) {
      pooled.push_back(gpu);
    }
  }
  return pooled;
}

// A pool finds out by itself that a stream has gone; whether there was one, the runtime says.
cudaError_t Preload::destroy_stream(cudaStream_t stream) {
  attempt([&] {
    for (const std::shared_ptr<Gpu>& gpu : pooled_gpus()) {
      attempt([&] { gpu->pool.forget(stream); });
    }
  });
  return next_.cudaStreamDestroy(stream);
}

cudaError_t Preload::reset_device() {
  const int mine = ordinal();
  std::shared_ptr<Gpu> gone;
  {
    const std::unique_lock lock(mutex_);
    if (const auto it = gpus_.find(mine); it != gpus_.end()) {
      gone = std::move(it->second);
      gpus_.erase(it);
    }
  }
  gone.reset();
  host_.forget(mine);
  return next_.cudaDeviceReset();
}

// --- the end -----------------------------------------------------------------------------------------------

std::string Preload::summary() {
  std::string text;
  for (std::size_t i = 0; i < kCalls; ++i) {
    text += std::string("vdnn preload: ") + kNames[i] + ": " + std::to_string(counts_[i].made) + " calls, " +
            std::to_string(counts_[i].passed) + " passed on\n";
  }
  for (const auto& [ordinal, gpu] : gpus_) {
    if (gpu) {
      const StreamPoolStatistics figures = gpu->pool.statistics();
      text += "vdnn preload: GPU " + std::to_string(ordinal) + ": at most " +
              format_size(figures.all.allocated.peak) + " in use, " + format_size(figures.all.reserved.peak) +
              " reserved; " + std::to_string(figures.all.blocks.current) + " blocks not given back, " +
              std::to_string(figures.stream_waits) + " waits of streams, " +
              std::to_string(figures.host_waits) + " of the host, " + std::to_string(figures.failures) +
              " refused\n";
    }
  }
  return text;
}

void Preload::write_summary() {
  if (settings_.summary == "1") {
    std::fputs(summary().c_str(), stderr);
  } else if (!settings_.summary.empty()) {
    std::ofstream(settings_.summary) << summary();
  }
}

void Preload::finish() noexcept {
  std::map<int, std::shared_ptr<Gpu>> ended;
  {
    const std::unique_lock lock(mutex_);
    finished_ = true;
    attempt([this] { write_summary(); });
    ended.swap(gpus_);
  }
  release_host_memory();
}

namespace {

Settings settings_or_none() {
  try {
    return read_settings();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "vdnn preload: %s; all memory is CUDA's\n", error.what());
    return {.pooled = false, .host_cache_bytes = 0};
  }
}

std::atomic<Preload*>& made() {
  static std::atomic<Preload*> preload{nullptr};
  return preload;
}

Preload* make_preload() {
  // Not on the heap, which may be exhausted: who has no Preload cannot even pass calls on.
  alignas(Preload) static std::array<std::byte, sizeof(Preload)> place;
  try {
    made() = new (place.data()) Preload(find_next_runtime(), settings_or_none());
  } catch (const std::exception& error) {
    say(error.what());
  }
  return made();
}

}  // namespace

Preload* Preload::instance() {
  static Preload* const preload = make_preload();
  return preload;
}

Preload* Preload::existing() {
  return made();
}

}  // namespace vdnn::preload
