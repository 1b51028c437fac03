#pragma once
// The current stream, the allocator and the memory of a GPU, by what PyTorch offers without its CUDA
// libraries. Older versions do not offer all of it.

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <optional>

#include "recent_peak.h"

namespace vdnn::door {

bool knows_gpus();
// Throws c10::Error where knows_gpus() is false.
void* current_gpu_stream(c10::Device device);
// The same as PyTorch names it.
c10::Stream current_gpu_stream_by_name(c10::Device device);
// The stream uses the memory, too: the allocator does not give it to others before it is through. Nothing for
// the stream that the memory was allocated on.
void record_on_stream(const c10::DataPtr& memory, c10::Stream stream);
void record_on_current_stream(const c10::DataPtr& memory, c10::Device device);
// The one that PyTorch allocates with now. libc10 knows only its own, not one that is plugged in.
c10::Allocator* gpu_allocator();
// None where the allocator, for example one from outside, has no statistics.
std::optional<MemoryFigures> gpu_memory(c10::Device device);

}  // namespace vdnn::door
