#pragma once
// A device as a stash of tensors (tensor_stash.h) uses it: the order of streams, page-locked memory in exact
// sizes, and copies on two streams of its own. There are three kinds: the streams of any CUDA program, those
// of one of our devices, on which the stash is tested, and the host, for PyTorch on the CPU.
//
// Streams and events are those of pool_backend.h. Each backend has an *offload stream*, on which copies to
// the host run, and a *prefetch stream* for copies back; both are in order. All other streams are the
// caller's.
//
// Thread-safe, all of it. Failures are exceptions: OutOfMemory where page-locked memory cannot be had,
// DeviceError where the device refuses; a call that throws has submitted nothing.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "vdnn/address_range.h"
#include "vdnn/pool_backend.h"

namespace vdnn {

class Device;

// Names the contents of a tensor: a storage, and how often it has been written in place.
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

  // Calls of one thread that follow each other, between these two, are cheaper: the backend enters its device
  // once for all of them. Not nested, and of one thread at a time; calls of other threads, and others of this
  // one, are as ever.
  virtual void begin_calls() {}
  virtual void end_calls() noexcept {}

  // As those of PoolBackend. By default no stream ever ends.
  virtual std::uint64_t stream_id(StreamHandle) { return 0; }
  virtual bool is_capturing(StreamHandle stream) = 0;
  virtual EventHandle record(StreamHandle stream) = 0;
  virtual void wait(StreamHandle stream, EventHandle event) = 0;
  virtual void synchronize(EventHandle event) = 0;
  virtual void release(EventHandle event) noexcept = 0;
  // Blocks the host until both streams of the backend are through with what they were given.
  virtual void synchronize_copies() = 0;

  // Page-locked, exactly `bytes` (> 0), aligned to pages.
  virtual AddressRange allocate_host(std::uint64_t bytes) = 0;
  // No copy uses it any more.
  virtual void free_host(AddressRange block) = 0;

  // To the host, on the offload stream. `contents` names what the source holds, for backends that check.
  virtual void copy_out(AddressRange block, AddressRange source, const StashIdentity& contents) = 0;
  // From the host, on the prefetch stream.
  virtual void copy_in(AddressRange target, AddressRange block, const StashIdentity& contents) = 0;

  // Of copies that are known to be done: how long they took, and how long the caller's streams waited for
  // them. 0 where the backend does not measure.
  struct Times {
    std::uint64_t copy_nanoseconds = 0;
    std::uint64_t wait_nanoseconds = 0;
  };
  virtual Times times() noexcept { return {}; }
};

// The streams of `device`, which must outlive the backend; its offload and prefetch streams are made. Sources
// and targets are ranges of the device's memory. Copies declare `contents` as the version of what they read
// and write: contents_version().
std::unique_ptr<StashBackend> make_stash_backend(Device& device);
std::uint64_t contents_version(const StashIdentity& contents);

// The streams of a program that uses the GPU `ordinal` by CUDA. Page-locked memory is of the NUMA node beside
// the GPU. `timed`: copies and waits are measured, by events that cost streams a little. Throws DeviceError
// where driver, GPU or this library's own CUDA is missing or too old.
std::unique_ptr<StashBackend> make_cuda_stash_backend(int ordinal, bool timed = false);

// The host is the device: a calling thread stands in for each stream of the caller's, and where a stream
// would wait the calling thread waits. Two threads make the copies; the calling thread makes those of up to
// 16 KiB where no earlier copy is under way, since waking a thread would take it longer. With `delay_seed`,
// the two threads make all copies, each after a random delay of up to a millisecond.
std::unique_ptr<StashBackend> make_host_stash_backend(std::optional<std::uint64_t> delay_seed = std::nullopt);

}  // namespace vdnn
