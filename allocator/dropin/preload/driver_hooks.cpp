#include "allocator/dropin/preload/driver_hooks.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <type_traits>

#include "allocator/dropin/preload/driver_runtime.h"
#include "allocator/dropin/preload/preload.h"

namespace vdnn::preload {

namespace {

template <class Work>
CUresult with_preload(const Work& work) noexcept {
  try {
    Preload* const preload = Preload::of_driver();
    return preload == nullptr ? CUDA_ERROR_NOT_INITIALIZED : static_cast<CUresult>(work(*preload));
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

void** pointer(CUdeviceptr* address) {
  return reinterpret_cast<void**>(address);
}

void* pointer(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

CUstream of_thread(CUstream stream) {
  return stream == nullptr ? CU_STREAM_PER_THREAD : stream;
}

CUresult allocate(CUdeviceptr* address, std::size_t bytes) {
  return with_preload([&](Preload& preload) { return preload.allocate(pointer(address), bytes); });
}
CUresult free(CUdeviceptr address) {
  return with_preload([&](Preload& preload) { return preload.free(pointer(address)); });
}
CUresult allocate_async(CUdeviceptr* address, std::size_t bytes, CUstream stream) {
  return with_preload([&](Preload& preload) { return preload.allocate(pointer(address), bytes, stream); });
}
CUresult free_async(CUdeviceptr address, CUstream stream) {
  return with_preload([&](Preload& preload) { return preload.free(pointer(address), stream); });
}
CUresult allocate_async_per_thread(CUdeviceptr* address, std::size_t bytes, CUstream stream) {
  return allocate_async(address, bytes, of_thread(stream));
}
CUresult free_async_per_thread(CUdeviceptr address, CUstream stream) {
  return free_async(address, of_thread(stream));
}
CUresult free_for_other(CUdeviceptr address) {
  return Pools::instance().owner(address) ? free(address) : driver()->cuMemFree(address);
}
CUresult free_async_for_other(CUdeviceptr address, CUstream stream) {
  return Pools::instance().owner(address) ? free_async(address, stream)
                                          : driver()->cuMemFreeAsync(address, stream);
}
CUresult free_async_per_thread_for_other(CUdeviceptr address, CUstream stream) {
  return free_async_for_other(address, of_thread(stream));
}
CUresult allocate_host(void** address, std::size_t bytes, unsigned flags) {
  return with_preload([&](Preload& preload) { return preload.allocate_host(address, bytes, flags); });
}
CUresult allocate_host_plainly(void** address, std::size_t bytes) {
  return allocate_host(address, bytes, 0);
}
CUresult free_host(void* address) {
  return with_preload([&](Preload& preload) { return preload.free_host(address); });
}
CUresult memory_info(std::size_t* free_bytes, std::size_t* total_bytes) {
  return with_preload([&](Preload& preload) { return preload.memory_info(free_bytes, total_bytes); });
}
CUresult destroy_stream(CUstream stream) {
  return with_preload([&](Preload& preload) { return preload.destroy_stream(stream); });
}
CUresult begin_capture(CUstream stream, CUstreamCaptureMode mode) {
  return with_preload([&](Preload& preload) {
    return preload.begin_capture(stream, static_cast<cudaStreamCaptureMode>(mode));
  });
}
CUresult begin_capture_per_thread(CUstream stream, CUstreamCaptureMode mode) {
  return begin_capture(of_thread(stream), mode);
}
CUresult end_capture(CUstream stream, CUgraph* graph) {
  return with_preload([&](Preload& preload) { return preload.end_capture(stream, graph); });
}
CUresult end_capture_per_thread(CUstream stream, CUgraph* graph) {
  return end_capture(of_thread(stream), graph);
}
#if CUDA_VERSION >= 12030  // the first version that declares cuStreamBeginCaptureToGraph()
CUresult begin_capture_to_graph(CUstream stream, CUgraph graph, const CUgraphNode* after,
                                const CUgraphEdgeData* edges, std::size_t count, CUstreamCaptureMode mode) {
  void* next = nullptr;
  auto answer = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  const CUresult found = driver()->cuGetProcAddress("cuStreamBeginCaptureToGraph", &next, 12030,
                                                    CU_GET_PROC_ADDRESS_LEGACY_STREAM, &answer);
  if (found != CUDA_SUCCESS || next == nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return with_preload([&](Preload& preload) {
    return preload.begin_capture(stream, [&] {
      return static_cast<cudaError_t>(reinterpret_cast<PFN_cuStreamBeginCaptureToGraph_v12030>(next)(
          stream, graph, after, edges, count, mode));
    });
  });
}
CUresult begin_capture_to_graph_per_thread(CUstream stream, CUgraph graph, const CUgraphNode* after,
                                           const CUgraphEdgeData* edges, std::size_t count,
                                           CUstreamCaptureMode mode) {
  return begin_capture_to_graph(of_thread(stream), graph, after, edges, count, mode);
}
#endif
CUresult reset_device(CUdevice device) {
  with_preload([&](Preload& preload) {
    preload.forget_device(device);
    return cudaSuccess;
  });
  return driver()->cuDevicePrimaryCtxReset(device);
}
CUresult ipc_handle(CUipcMemHandle* handle, CUdeviceptr address) {
  return with_preload([&](Preload& preload) {
    return preload.ipc_handle(reinterpret_cast<cudaIpcMemHandle_t*>(handle), pointer(address));
  });
}

// Wraps a function of the driver that allocates, for any caller. If there is no memory, the pools give back
// their free memory, and the driver's function is called again. `kNumber` differs for each such function.
template <int kNumber, class Function>
struct Taking;

template <int kNumber, class... Arguments>
struct Taking<kNumber, CUresult (*)(Arguments...)> {
  static inline std::atomic<CUresult (*)(Arguments...)> next{nullptr};

  static void keep(void* function) { next = reinterpret_cast<CUresult (*)(Arguments...)>(function); }
  static CUresult take(Arguments... arguments) {
    return with_preload([&](Preload& preload) {
      return preload.with_memory([&] { return static_cast<cudaError_t>(next.load()(arguments...)); });
    });
  }
};

template <Asker kAsker>
CUresult look_up(const char* name, void** function, int version, cuuint64_t flags,
                 CUdriverProcAddressQueryResult* answer) {
  const CUresult result = driver()->cuGetProcAddress(name, function, version, flags, answer);
  if (result == CUDA_SUCCESS && *function != nullptr) {
    const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    if (void* const mine = find_driver_hook(kAsker, name, version, per_thread, *function); mine != nullptr) {
      *function = mine;
      Pools::instance().looked_up += kAsker == Asker::kServed ? 1 : 0;
    }
  }
  return result;
}
// The signature of CUDA 11.3, without the parameter `answer`.
template <Asker kAsker>
CUresult look_up_without_answer(const char* name, void** function, int version, cuuint64_t flags) {
  return look_up<kAsker>(name, function, version, flags, nullptr);
}

struct Hook {
  std::string_view name;
  int version;  // the first version with this signature
  std::string_view symbol;
  void* function;   // for callers that are served
  void* for_other;  // null: the driver's own function
  bool per_thread = false;
  void (*keep)(void* next) = nullptr;  // called with the driver's own function
};

// `Driver` is the type of the driver's function.
template <class Driver>
Hook for_served(std::string_view name, int version, std::string_view symbol, Driver function,
                bool per_thread = false) {
  return {name, version, symbol, reinterpret_cast<void*>(function), nullptr, per_thread};
}
// For functions that allocate. Served callers get `function`, or Taking::take if `function` is null. All
// other callers get Taking::take.
template <int kNumber, class Driver>
Hook taking(std::string_view name, int version, std::string_view symbol, Driver function = nullptr,
            bool per_thread = false) {
  using Take = Taking<kNumber, Driver>;
  const Driver mine = function == nullptr ? Take::take : function;
  return {name,       version,   symbol, reinterpret_cast<void*>(mine), reinterpret_cast<void*>(Take::take),
          per_thread, Take::keep};
}
template <class Driver>
Hook for_all(std::string_view name, int version, std::string_view symbol, Driver function, Driver for_other,
             bool per_thread = false) {
  return {name,      version, symbol, reinterpret_cast<void*>(function), reinterpret_cast<void*>(for_other),
          per_thread};
}

// For each name, the newest version comes first. Among entries of one version, the one for programs with
// per-thread default streams comes first.
const auto& hooks() {
  static const std::array all = {
    taking<0, PFN_cuMemAlloc_v3020>("cuMemAlloc", 3020, "cuMemAlloc_v2", allocate),
    for_all<PFN_cuMemFree_v3020>("cuMemFree", 3020, "cuMemFree_v2", free, free_for_other),
    taking<1, PFN_cuMemAllocAsync_v11020_ptsz>("cuMemAllocAsync", 11020, "cuMemAllocAsync_ptsz",
                                               allocate_async_per_thread, true),
    taking<2, PFN_cuMemAllocAsync_v11020>("cuMemAllocAsync", 11020, "cuMemAllocAsync", allocate_async),
    taking<3, PFN_cuMemAllocFromPoolAsync_v11020_ptsz>("cuMemAllocFromPoolAsync", 11020,
                                                       "cuMemAllocFromPoolAsync_ptsz", nullptr, true),
    taking<4, PFN_cuMemAllocFromPoolAsync_v11020>("cuMemAllocFromPoolAsync", 11020,
                                                  "cuMemAllocFromPoolAsync"),
    taking<5, PFN_cuMemAllocManaged_v6000>("cuMemAllocManaged", 6000, "cuMemAllocManaged"),
    taking<6, PFN_cuMemAllocPitch_v3020>("cuMemAllocPitch", 3020, "cuMemAllocPitch_v2"),
    taking<7, PFN_cuArrayCreate_v3020>("cuArrayCreate", 3020, "cuArrayCreate_v2"),
    taking<8, PFN_cuArray3DCreate_v3020>("cuArray3DCreate", 3020, "cuArray3DCreate_v2"),
    taking<9, PFN_cuMemCreate_v10020>("cuMemCreate", 10020, "cuMemCreate"),
    for_all<PFN_cuMemFreeAsync_v11020_ptsz>("cuMemFreeAsync", 11020, "cuMemFreeAsync_ptsz",
                                            free_async_per_thread, free_async_per_thread_for_other, true),
    for_all<PFN_cuMemFreeAsync_v11020>("cuMemFreeAsync", 11020, "cuMemFreeAsync", free_async,
                                       free_async_for_other),
    for_served<PFN_cuMemHostAlloc_v2020>("cuMemHostAlloc", 2020, "cuMemHostAlloc", allocate_host),
    for_served<PFN_cuMemAllocHost_v3020>("cuMemAllocHost", 3020, "cuMemAllocHost_v2", allocate_host_plainly),
    for_all<PFN_cuMemFreeHost_v2000>("cuMemFreeHost", 2000, "cuMemFreeHost", free_host, free_host),
    for_served<PFN_cuMemGetInfo_v3020>("cuMemGetInfo", 3020, "cuMemGetInfo_v2", memory_info),
    for_all<PFN_cuStreamDestroy_v4000>("cuStreamDestroy", 4000, "cuStreamDestroy_v2", destroy_stream,
                                       destroy_stream),
    for_all<PFN_cuStreamBeginCapture_v10010_ptsz>("cuStreamBeginCapture", 10010,
                                                  "cuStreamBeginCapture_v2_ptsz", begin_capture_per_thread,
                                                  begin_capture_per_thread, true),
    for_all<PFN_cuStreamBeginCapture_v10010>("cuStreamBeginCapture", 10010, "cuStreamBeginCapture_v2",
                                             begin_capture, begin_capture),
    for_all<PFN_cuStreamEndCapture_v10000_ptsz>("cuStreamEndCapture", 10000, "cuStreamEndCapture_ptsz",
                                                end_capture_per_thread, end_capture_per_thread, true),
    for_all<PFN_cuStreamEndCapture_v10000>("cuStreamEndCapture", 10000, "cuStreamEndCapture", end_capture,
                                           end_capture),
#if CUDA_VERSION >= 12030
    for_all<PFN_cuStreamBeginCaptureToGraph_v12030_ptsz>(
        "cuStreamBeginCaptureToGraph", 12030, "cuStreamBeginCaptureToGraph_ptsz",
        begin_capture_to_graph_per_thread, begin_capture_to_graph_per_thread, true),
    for_all<PFN_cuStreamBeginCaptureToGraph_v12030>("cuStreamBeginCaptureToGraph", 12030,
                                                    "cuStreamBeginCaptureToGraph", begin_capture_to_graph,
                                                    begin_capture_to_graph),
#endif
    for_all<PFN_cuDevicePrimaryCtxReset_v11000>("cuDevicePrimaryCtxReset", 11000,
                                                "cuDevicePrimaryCtxReset_v2", reset_device, reset_device),
    for_all<PFN_cuDevicePrimaryCtxReset_v11000>("cuDevicePrimaryCtxReset", 7000, "cuDevicePrimaryCtxReset",
                                                reset_device, reset_device),
    for_all<PFN_cuIpcGetMemHandle_v4010>("cuIpcGetMemHandle", 4010, "cuIpcGetMemHandle", ipc_handle,
                                         ipc_handle),
    for_all<PFN_cuGetProcAddress_v12000>("cuGetProcAddress", 12000, "cuGetProcAddress_v2",
                                         look_up<Asker::kServed>, look_up<Asker::kOther>),
    for_all<PFN_cuGetProcAddress_v11030>("cuGetProcAddress", 11030, "cuGetProcAddress",
                                         look_up_without_answer<Asker::kServed>,
                                         look_up_without_answer<Asker::kOther>),
  };
  return all;
}

template <class Is>
void* find(Asker asker, const Is& is, void* next) {
  const auto& all = hooks();
  const auto* const found = std::ranges::find_if(all, is);
  if (found == all.end()) {
    return nullptr;
  }
  if (found->keep != nullptr) {
    found->keep(next);
  }
  return asker == Asker::kServed ? found->function : found->for_other;
}

}  // namespace

void* find_driver_hook(Asker asker, std::string_view name, int version, bool per_thread, void* next) {
  const auto is = [&](const Hook& hook) {
    return hook.name == name && hook.version <= version && (per_thread || !hook.per_thread);
  };
  return find(asker, is, next);
}

void* find_driver_hook(Asker asker, std::string_view symbol, void* next) {
  return find(
      asker, [&](const Hook& hook) { return hook.symbol == symbol; }, next);
}

bool is_hooked(std::string_view symbol) {
  return std::ranges::any_of(hooks(), [&](const Hook& hook) { return hook.symbol == symbol; });
}

}  // namespace vdnn::preload
