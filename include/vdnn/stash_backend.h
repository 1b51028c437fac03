#pragma once
// The interface through which a stash of tensors (tensor_stash.h) uses a device: the order of streams,
// page-locked memory in exact sizes, and copies on two streams of its own. There are three implementations:
// for the streams of any CUDA program, for the streams of a Device (tests of the stash), and for the host
// (PyTorch on the CPU).
//
// Streams and events are those of pool_backend.h. Each backend has an *offload stream*, on which copies to
// the host run, and a *prefetch stream* for copies back; both are in order. All other streams are the
// caller's.
//
// All functions are thread-safe. Failures are exceptions: OutOfMemory when page-locked memory is lacking,
// DeviceError when the device refuses. A call that throws has submitted nothing.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "vdnn/address_range.h"
#include "vdnn/pool_backend.h"

namespace vdnn {

class Device;

// Identifies the contents of a tensor: a storage, and how often it has been written in place.
struct StashIdentity {
  std::uint64_t storage = 0;
  std::uint64_t version = 0;
  friend bool operator==(const StashIdentity&, const StashIdentity&) = default;
};

class StashBackend {
 public:
  StashBackend() = default;
  virtual ~StashBackend() = default;
  StashBackend(const StashBackend&) = delete;
  StashBackend& operator=(const StashBackend&) = delete;

  virtual std::string name() const = 0;  // in errors
  virtual StreamHandle offload_stream() const = 0;
  virtual StreamHandle prefetch_stream() const = 0;

  // The calls of a thread between begin_calls() and end_calls() are cheaper: the backend enters its device
  // once for all of them. Pairs must not nest, and only one thread at a time may be between them. Other calls
  // are not affected.
  virtual void begin_calls() {}
  virtual void end_calls() noexcept {}

  // Like the functions of PoolBackend with these names. The default stream_id() suits backends whose streams
  // never end.
  virtual std::uint64_t stream_id(StreamHandle) { return 0; }
  virtual bool is_capturing(StreamHandle stream) = 0;
  virtual EventHandle record(StreamHandle stream) = 0;
  virtual void wait(StreamHandle stream, EventHandle event) = 0;
  virtual void synchronize(EventHandle event) = 0;
  virtual void release(EventHandle event) noexcept = 0;
  // Blocks the host until all copies on both streams of the backend are done.
  virtual void synchronize_copies() = 0;

  // Allocates a page-locked block of exactly `bytes` (> 0), aligned to pages.
  virtual AddressRange allocate_host(std::uint64_t bytes) = 0;
  // Frees a block that no copy uses any more.
  virtual void free_host(AddressRange block) = 0;

  // Submits a copy to the host on the offload stream. `contents` identifies what the source holds, for
  // backends that check it.
  virtual void copy_out(AddressRange block, AddressRange source, const StashIdentity& contents) = 0;
  // Submits a copy from the host on the prefetch stream.
  virtual void copy_in(AddressRange target, AddressRange block, const StashIdentity& contents) = 0;

  // For copies that are known to be done: their total time, and how long the caller's streams waited for
  // them. 0 if the backend does not measure.
  struct Times {
    std::uint64_t copy_nanoseconds = 0;
    std::uint64_t wait_nanoseconds = 0;
  };
  virtual Times times() noexcept { return {}; }
};

// A backend over the streams of `device`, which must outlive it; it makes the offload and the prefetch
// stream. Sources and targets are ranges of the device's memory. Copies declare contents_version(contents) as
// the version of the bytes that they read and write.
std::unique_ptr<StashBackend> make_stash_backend(Device& device);
std::uint64_t contents_version(const StashIdentity& contents);

// A backend over the streams of a CUDA program on the GPU `ordinal`. Page-locked memory comes from the GPU's
// NUMA node. `timed`: copies and waits are measured, by events that cost the streams a little time. Throws
// DeviceError if driver, GPU or this library's own CUDA is missing or too old.
std::unique_ptr<StashBackend> make_cuda_stash_backend(int ordinal, bool timed = false);

// A backend in which the host is the device. The calling thread acts as each of the caller's streams: where a
// stream would wait, the thread waits. Two threads make the copies. The calling thread makes copies of up to
// 16 KiB itself if no earlier copy is under way, since waking a thread would take longer. With `delay_seed`,
// the two threads make all copies, each after a random delay of up to a millisecond.
std::unique_ptr<StashBackend> make_host_stash_backend(std::optional<std::uint64_t> delay_seed = std::nullopt);

}  // namespace vdnn
