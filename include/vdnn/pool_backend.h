#pragma once
// What a pool needs of a device and of streams that it does not run: memory by granules, the identity of a
// stream, and events. Behind it are the streams of a program that never heard of us (CUDA), or those of one
// of our devices, on which the pool is tested.
//
// Memory and addresses are apart. A *granule* is memory that has no address; it can be used where it is
// mapped into address space, at several places at once if need be. All of them then show the same bytes.
//
// A stream is known by a handle, which the program may destroy and the system give to another one, and by an
// id, which is never used again. An *event* stands for all that its stream was given before it was recorded.
//
// Thread-safe, all of it. Failures are exceptions: OutOfMemory where memory or address space cannot be had,
// DeviceError where the device refuses; what has failed has changed nothing, but that unmap() may have done a
// part where it was given several granules.

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

// A stream is being captured, and the call would cross the border of the capture or wait for what does not
// run.
class CaptureConflict : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

struct PoolBackendProperties {
  std::string name;                   // in errors
  std::uint64_t memory_bytes = 0;     // what a pool may take where nobody says less
  std::uint64_t granule_bytes = 0;    // a power of two
  std::uint64_t alignment_bytes = 0;  // of blocks; a power of two, not more than a granule
  // Whether granules can be mapped. Else a reservation has its memory from the beginning, and granules are a
  // matter of counting: mapping and unmapping them does nothing.
  bool maps = true;
};

class PoolBackend {
 public:
  virtual ~PoolBackend() = default;
  PoolBackend(const PoolBackend&) = delete;
  PoolBackend& operator=(const PoolBackend&) = delete;

  const PoolBackendProperties& properties() const { return properties_; }

  // Address space for `bytes` (rounded up to granules), nothing mapped.
  virtual AddressRange reserve(std::uint64_t bytes) = 0;
  // A whole reservation, of which nothing is mapped.
  virtual void unreserve(AddressRange reservation) = 0;
  // Memory of undefined content.
  virtual GranuleHandle create_granule() = 0;
  // Its memory is the device's again once no mapping of it is left.
  virtual void destroy_granule(GranuleHandle granule) = 0;
  // `range`: inside a reservation, nothing mapped there, and as large as the granules, which come to lie
  // there one behind the other.
  virtual void map(AddressRange range, std::span<const GranuleHandle> granules) = 0;
  // `range`: whole granules, mapped in one piece or many; work that was given these addresses has completed.
  // Where it fails, some of them may have been unmapped: a call for the same range does the rest.
  virtual void unmap(AddressRange range) = 0;
  // Instead of unmap() and unreserve(): work may use the reservation that cannot be waited for while a stream
  // is captured. What is mapped there stays until synchronize_all() has succeeded; where the backend dies
  // before, until the process ends.
  virtual void leave(AddressRange /*reservation*/) noexcept {}

  // Never that of another stream, not of one that is gone either. Throws where there is no such stream.
  virtual std::uint64_t stream_id(StreamHandle stream) = 0;
  // The handle means another stream on each thread (CUDA's per-thread default stream).
  virtual bool is_of_thread(StreamHandle) const { return false; }
  // Work given to the stream does not run, but becomes part of a graph. Or none can be given to it, since it
  // would wait for such a stream (CUDA's legacy default stream, while a blocking stream is captured).
  virtual bool is_capturing(StreamHandle stream) = 0;

  // An event behind all that `stream` has been given.
  virtual EventHandle record(StreamHandle stream) = 0;
  // What `stream` is given from now on comes after `event`. The host does not block.
  virtual void wait(StreamHandle stream, EventHandle event) = 0;
  // Does not block.
  virtual bool reached(EventHandle event) = 0;
  // Blocks the host.
  virtual void synchronize(EventHandle event) = 0;
  // Until all that any stream has been given is done. Throws CaptureConflict, and waits for nothing, where a
  // stream is known to be captured; on CUDA the wait would invalidate the capture.
  virtual void synchronize_all() = 0;
  // The event is not named again; streams that wait for it go on waiting.
  virtual void release(EventHandle event) noexcept = 0;

 protected:
  explicit PoolBackend(PoolBackendProperties properties) : properties_(std::move(properties)) {}

 private:
  PoolBackendProperties properties_;
};

// The streams of a Device, which must outlive the backend. An event is the frontier of its stream. Work that
// has failed is done; its failure is told where the device tells it.
//
// Each granule is one that the device has committed, and counts against its budget. Its address in a pool is
// another one: what is mapped there of the device's memory is what work on it has to declare. On devices that
// touch memory, bytes are to be had at the pool's addresses alone.
class DevicePoolBackend : public PoolBackend {
 public:
  // Of the device, piece by piece in order; what is not mapped is left out.
  virtual std::vector<AddressRange> device_ranges(AddressRange range) const = 0;

 protected:
  using PoolBackend::PoolBackend;
};
std::unique_ptr<DevicePoolBackend> make_pool_backend(Device& device);
// What such a backend knows a stream by.
StreamHandle stream_handle(StreamId stream);

struct CudaBackendOptions {
  // Every GPU that can reach this one as a peer may touch the pool's memory, by copies and kernels; whether
  // peer access was enabled otherwise does not matter to virtual memory. False: this GPU alone, which maps a
  // little faster.
  bool peer_access = true;
  // Whether a stream of the program is being captured: asked before all of the GPU is waited for, by any
  // thread and under the pool's lock: it must not call the pool. Empty: known of blocking streams, and of
  // those that the pool serves.
  std::function<bool()> is_capturing_any;
};

// The streams of a program that uses the GPU `ordinal` by CUDA. Blocks are aligned to 512 bytes, as
// cudaMalloc aligns them. Of the default streams the legacy one, handle 0 or cudaStreamLegacy, is a stream
// like any other: that blocking streams wait for it is not relied on. Calls set the GPU for the calling
// thread and put back the context that it had, primary or not, or, where it had none, its GPU if the process
// uses that one.
//
// Where the GPU has no virtual memory management, a pool takes its whole budget at once (cudaMalloc) and
// gives nothing back before it dies; `memory_bytes` is a little less than what is free then.
//
// Throws DeviceError where driver, GPU or this library's own CUDA is missing or too old.
std::unique_ptr<PoolBackend> make_cuda_pool_backend(int ordinal, const CudaBackendOptions& options = {});

}  // namespace vdnn
