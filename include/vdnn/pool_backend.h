#pragma once
// The interface through which a pool uses a device and streams that it does not run: memory by granules, the
// identity of streams, and events. One implementation serves the streams of any CUDA program, another the
// streams of one of our devices, on which the pool is tested.
//
// Memory and addresses are separate. A *granule* is memory without an address. It can be mapped into address
// space, also at several places at once, which then all show the same bytes.
//
// A stream has a handle and an id. The program may destroy the stream, and the system may give its handle to
// another one; ids are never used again. An *event* represents all work that was submitted to its stream
// before the event was recorded.
//
// All functions are thread-safe. Failures are exceptions: OutOfMemory when memory or address space is
// lacking, DeviceError when the device refuses. A failed call has changed nothing, except that unmap() of
// several granules may have unmapped some of them.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "vdnn/address_range.h"
#include "vdnn/error.h"
#include "vdnn/frontier.h"

namespace vdnn {

class Device;

using StreamHandle = void*;  // on CUDA a cudaStream_t
using EventHandle = void*;
using GranuleHandle = std::uint64_t;

// A stream is being captured, and the call would cross the border of the capture or wait for work that does
// not run.
class CaptureConflict : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

struct PoolBackendProperties {
  std::string name;                   // in errors
  std::uint64_t memory_bytes = 0;     // the default budget of a pool
  std::uint64_t granule_bytes = 0;    // a power of two
  std::uint64_t alignment_bytes = 0;  // of blocks; a power of two, not more than a granule
  // Whether granules can be mapped. If not, a reservation has its memory from the beginning, and granules are
  // only counted: mapping and unmapping them does nothing.
  bool maps = true;
};

class PoolBackend {
 public:
  virtual ~PoolBackend() = default;
  PoolBackend(const PoolBackend&) = delete;
  PoolBackend& operator=(const PoolBackend&) = delete;

  const PoolBackendProperties& properties() const { return properties_; }

  // Reserves address space for `bytes` (rounded up to granules), where nothing is mapped.
  virtual AddressRange reserve(std::uint64_t bytes) = 0;
  // Ends a whole reservation, in which nothing may be mapped.
  virtual void unreserve(AddressRange reservation) = 0;
  // Creates memory with undefined contents.
  virtual GranuleHandle create_granule() = 0;
  // The memory returns to the device once no mapping of it is left.
  virtual void destroy_granule(GranuleHandle granule) = 0;
  // Maps the granules side by side to `range`. The range must be inside a reservation, have the granules'
  // total size and have nothing mapped.
  virtual void map(AddressRange range, std::span<const GranuleHandle> granules) = 0;
  // Unmaps `range`: whole granules, mapped by one call or several. Work on these addresses must have
  // completed. If the call fails, some of the granules may have been unmapped; another call for the same
  // range unmaps the rest.
  virtual void unmap(AddressRange range) = 0;
  // Call this instead of unmap() and unreserve() if the reservation may be in use by work that cannot be
  // waited for during a capture. Its mappings stay until synchronize_all() has succeeded or, if the backend
  // is destroyed earlier, until the process ends.
  virtual void leave(AddressRange /*reservation*/) noexcept {}

  // An id that no other stream has or had. Throws InvalidArgument when there is no such stream.
  virtual std::uint64_t stream_id(StreamHandle stream) = 0;
  // Whether the handle means a different stream on each thread (CUDA's per-thread default stream).
  virtual bool is_of_thread(StreamHandle) const { return false; }
  // Whether work submitted to the stream becomes part of a graph instead of running. Also true if the stream
  // accepts no work because it would wait for such a stream (CUDA's legacy default stream, while a blocking
  // stream is captured).
  virtual bool is_capturing(StreamHandle stream) = 0;

  // Records an event that is reached when all work submitted to `stream` so far is done.
  virtual EventHandle record(StreamHandle stream) = 0;
  // Orders work submitted to `stream` from now on after `event`. The host does not block.
  virtual void wait(StreamHandle stream, EventHandle event) = 0;
  // Whether the event has been reached. Does not block.
  virtual bool reached(EventHandle event) = 0;
  // Blocks the host until the event has been reached.
  virtual void synchronize(EventHandle event) = 0;
  // Blocks the host until all work of all streams is done. Throws CaptureConflict, without waiting, if a
  // stream is known to be captured; on CUDA the wait would invalidate the capture.
  virtual void synchronize_all() = 0;
  // Ends the caller's use of the event; streams that wait for the event continue to wait.
  virtual void release(EventHandle event) noexcept = 0;

 protected:
  explicit PoolBackend(PoolBackendProperties properties) : properties_(std::move(properties)) {}

 private:
  PoolBackendProperties properties_;
};

// A backend over the streams of a Device, which must outlive it. An event is the frontier of its stream.
// Failed work counts as done; the device reports the failure.
//
// Each granule is committed on the device and counts against its budget. Its address in a pool differs from
// its address on the device, and work on it has to declare its address on the device: device_ranges(). On
// devices that touch memory, the bytes are accessible at the pool's addresses only.
class DevicePoolBackend : public PoolBackend {
 public:
  // The device's addresses of the memory mapped to `range`, piece by piece in order; unmapped parts are left
  // out.
  virtual std::vector<AddressRange> device_ranges(AddressRange range) const = 0;

 protected:
  using PoolBackend::PoolBackend;
};
std::unique_ptr<DevicePoolBackend> make_pool_backend(Device& device);
// The handle of a stream in such a backend.
StreamHandle stream_handle(StreamId stream);

struct CudaBackendOptions {
  // True: every GPU that can reach this one as a peer may access the pool's memory, by copies and kernels,
  // even if the program has not enabled peer access. False: only this GPU may access it; mapping is then a
  // little faster.
  bool peer_access = true;
  // Returns whether a stream of the program is being captured. Called by any thread, under the pool's lock,
  // before the host waits for the whole GPU; it must not call the pool. Empty: only captures of blocking
  // streams and of streams that the pool serves are known.
  std::function<bool()> is_capturing_any;
};

// A backend over the streams of a CUDA program on the GPU `ordinal`. Blocks are aligned to 512 bytes, as
// cudaMalloc() aligns them. The legacy default stream, handle 0 or cudaStreamLegacy, is a stream like any
// other: the pool does not rely on blocking streams waiting for it. Each call sets the calling thread's
// current GPU and restores the thread's previous context, primary or not. If the thread had no context, the
// call restores the thread's previous GPU if the process uses that GPU.
//
// If the GPU has no virtual memory management, a pool allocates its whole budget at once (cudaMalloc) and
// gives nothing back until it is destroyed. `memory_bytes` is a little less than the memory that is free when
// the backend is made.
//
// Throws DeviceError if driver, GPU or this library's own CUDA is missing or too old.
std::unique_ptr<PoolBackend> make_cuda_pool_backend(int ordinal, const CudaBackendOptions& options = {});

}  // namespace vdnn
