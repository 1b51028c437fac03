#pragma once
// A stream pool that keeps a log of what it is asked (vdnn/allocation_log.h), so that the same can be asked
// of other allocators later: `bench/allocator_replay`. It is put around a pool that others may use directly,
// too; those requests are not in the log.

#include <cstdint>
#include <memory>
#include <optional>

#include "vdnn/allocation_log.h"
#include "vdnn/stream_pool.h"

namespace vdnn {

// Thread-safe: the log has the calls of all threads in an order that explains them. The functions are those
// of StreamPool; what is refused, or throws, is not in the log. The pool must outlive it. A log grows with
// every call.
class LoggedPool {
 public:
  explicit LoggedPool(StreamPool& pool);
  ~LoggedPool();
  LoggedPool(const LoggedPool&) = delete;
  LoggedPool& operator=(const LoggedPool&) = delete;

  std::optional<AddressRange> allocate(std::uint64_t bytes, StreamHandle stream,
                                       BlockLife life = BlockLife::kTransient);
  void free(std::uint64_t address);
  void free(std::uint64_t address, StreamHandle stream);
  void used_on(std::uint64_t address, StreamHandle stream);
  // What follows is a step: it frees all that it allocates, and nothing else, or the log cannot be written.
  void begin_step();

  // So far. Streams are numbered as they turn up, from 0; a handle that is used again for another stream is
  // the same one.
  AllocationLog log() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vdnn
