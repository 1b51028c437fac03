#pragma once
// This project's pools for bench/allocator_replay, on devices that do nothing.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "bench/null_backend.h"
#include "bench/null_device.h"
#include "bench/replayed_allocator.h"
#include "vdnn/device_pool.h"
#include "vdnn/stream_pool.h"

namespace vdnn::bench {

// Allocation without a pool: the device serves each request, in whole units of 512 bytes.
class PlainAllocation final : public ReplayedAllocator {
 public:
  void allocate(std::uint64_t block, std::uint64_t bytes, std::uint32_t stream, bool lasting) override;
  void use(std::uint64_t, std::uint32_t) override {}
  void free(std::uint64_t block, std::uint32_t stream) override;
  std::uint64_t reserved_bytes() const override { return reserved_; }

 private:
  std::unordered_map<std::uint64_t, std::uint64_t> bytes_;
  std::uint64_t reserved_ = 0;
};

// The executor's pool. Each use and each free follows a piece of work on its stream.
class ReplayedDevicePool final : public ReplayedAllocator {
 public:
  ReplayedDevicePool();
  void allocate(std::uint64_t block, std::uint64_t bytes, std::uint32_t stream, bool lasting) override;
  void use(std::uint64_t block, std::uint32_t stream) override;
  void free(std::uint64_t block, std::uint32_t stream) override;
  std::uint64_t reserved_bytes() const override { return pool_.statistics().committed_bytes; }
  std::uint64_t waits() const override { return pool_.statistics().reused_after_wait; }

 private:
  struct Block {
    AddressRange range;
    Frontier used;
  };
  StreamId stream_of(std::uint32_t number);

  NullDevice device_;
  DevicePool pool_;
  std::unordered_map<std::uint32_t, StreamId> streams_;
  std::unordered_map<std::uint64_t, Block> blocks_;
};

// The pool for programs that vdnn does not run.
class ReplayedStreamPool final : public ReplayedAllocator {
 public:
  ReplayedStreamPool();
  void allocate(std::uint64_t block, std::uint64_t bytes, std::uint32_t stream, bool lasting) override;
  void use(std::uint64_t block, std::uint32_t stream) override;
  void free(std::uint64_t block, std::uint32_t stream) override;
  std::uint64_t reserved_bytes() const override {
    return backend_.granules() * backend_.properties().granule_bytes;
  }
  std::uint64_t waits() const override { return pool_.statistics().stream_waits; }
  std::uint64_t mapped_granules() const { return backend_.mapped_granules(); }

 private:
  NullBackend backend_;
  StreamPool pool_;
  std::unordered_map<std::uint64_t, std::uint64_t> addresses_;
};

}  // namespace vdnn::bench
