#include "gpu_figures.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#ifdef VDNN_HAS_GETDEVICEALLOCATOR
#include <c10/core/CachingDeviceAllocator.h>
#endif

namespace vdnn::door {
namespace {

// Templates, so that only functions that this version of PyTorch has are compiled.
template <class Guard>
constexpr bool kHasStreams = requires(const Guard& guard, c10::Stream stream) {
  guard.getStreamNativeHandle(stream);
};

template <class Guard>
void* native_stream(c10::Device device) {
  if constexpr (kHasStreams<Guard>) {
    const Guard guard(device.type());
    return guard.getStreamNativeHandle(guard.getStream(device));
  } else {
    TORCH_CHECK(false, "vdnn: this PyTorch does not let C++ access GPU streams");
  }
}

template <class Allocator>
std::optional<MemoryFigures> figures_of(Allocator* allocator, c10::Device device) {
  if constexpr (requires { allocator->getDeviceStats(device.index()); }) {
    if (allocator != nullptr && allocator->initialized()) {
      const auto& bytes = allocator->getDeviceStats(device.index()).allocated_bytes[0];
      return MemoryFigures{.current = static_cast<std::uint64_t>(bytes.current),
                           .peak = static_cast<std::uint64_t>(bytes.peak),
                           .allocated = static_cast<std::uint64_t>(bytes.allocated)};
    }
  }
  return std::nullopt;
}

}  // namespace

bool knows_gpus() {
  return kHasStreams<c10::impl::VirtualGuardImpl>;
}

void* current_gpu_stream(c10::Device device) {
  return native_stream<c10::impl::VirtualGuardImpl>(device);
}

c10::Stream current_gpu_stream_by_name(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

void record_on_stream(const c10::DataPtr& memory, c10::Stream stream) {
  c10::impl::VirtualGuardImpl(stream.device_type()).recordDataPtrOnStream(memory, stream);
}

void record_on_current_stream(const c10::DataPtr& memory, c10::Device device) {
  record_on_stream(memory, current_gpu_stream_by_name(device));
}

c10::Allocator* gpu_allocator() {
  return at::detail::getCUDAHooks().getCUDADeviceAllocator();
}

std::optional<MemoryFigures> gpu_memory(c10::Device device) {
#ifdef VDNN_HAS_GETDEVICEALLOCATOR
  try {
    return figures_of(dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type())), device);
  } catch (const c10::Error&) {  // CUDAPluggableAllocator has no statistics
    return std::nullopt;
  }
#else
  static_cast<void>(device);
  return std::nullopt;
#endif
}

}  // namespace vdnn::door
