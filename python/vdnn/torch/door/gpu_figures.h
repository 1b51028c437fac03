#pragma once
// The current stream, the allocator and the memory of a GPU, through interfaces that PyTorch has outside its
// CUDA libraries. Older versions of PyTorch lack some of these interfaces.

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <optional>

#include "recent_peak.h"

namespace vdnn::door {

bool knows_gpus();
// Throws c10::Error if knows_gpus() is false.
void* current_gpu_stream(c10::Device device);
// The current stream of the device as a c10::Stream.
c10::Stream current_gpu_stream_by_name(c10::Device device);
// Tells the allocator that the stream also uses the memory, so that the memory is reused only after the
// stream's work. Does nothing for the stream on which the memory was allocated.
void record_on_stream(const c10::DataPtr& memory, c10::Stream stream);
void record_on_current_stream(const c10::DataPtr& memory, c10::Device device);
// PyTorch's current allocator of GPU memory. libc10 knows only the built-in allocator, not a plugged-in one.
c10::Allocator* gpu_allocator();
// The memory of the device; absent if the allocator has no statistics, as a plugged-in allocator has none.
std::optional<MemoryFigures> gpu_memory(c10::Device device);

}  // namespace vdnn::door
