#pragma once
// A wrapper of a stream pool that logs its calls (vdnn/allocation_log.h), so that `bench/allocator_replay`
// can make the same calls to other allocators. A program may also call the pool directly; such calls are not
// in the log.

#include <cstdint>
#include <memory>
#include <optional>

#include "vdnn/allocation_log.h"
#include "vdnn/stream_pool.h"

namespace vdnn {

// Thread-safe. The log has the calls of all threads in an order in which they may have happened: a free comes
// before the reuse of its memory. The functions are those of StreamPool; calls that are refused, or throw,
// are not in the log. The pool must outlive this object. A log grows with every call.
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
  // The calls that follow are a step, which must free all blocks that it allocates, and no others. Otherwise
  // write_allocation_log() throws.
  void begin_step();

  // The log so far. Streams are numbered from 0 in the order in which their handles first appear; a handle
  // that is reused for another stream keeps its number.
  AllocationLog log() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vdnn
