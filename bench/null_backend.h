#pragma once
// A backend of pools that does nothing, with the granules and the alignment of a GPU: costs and memory
// measured on it are the pool's own.

#include <cstdint>
#include <span>

#include "vdnn/pool_backend.h"

namespace vdnn::bench {

class NullBackend : public PoolBackend {
 public:
  explicit NullBackend(std::uint64_t memory_bytes)
      : PoolBackend({.name = "nothing",
                     .memory_bytes = memory_bytes,
                     .granule_bytes = 2 << 20,
                     .alignment_bytes = 512}) {}

  AddressRange reserve(std::uint64_t bytes) override {
    const AddressRange range{.begin = next_, .bytes = bytes};
    next_ += bytes;
    return range;
  }
  void unreserve(AddressRange) override {}
  GranuleHandle create_granule() override { return ++granules_; }
  void destroy_granule(GranuleHandle) override { --granules_; }
  void map(AddressRange, std::span<const GranuleHandle> granules) override { mapped_ += granules.size(); }
  void unmap(AddressRange) override {}
  std::uint64_t stream_id(StreamHandle stream) override { return reinterpret_cast<std::uintptr_t>(stream); }
  bool is_capturing(StreamHandle) override { return false; }
  EventHandle record(StreamHandle) override { return nullptr; }
  void wait(StreamHandle, EventHandle) override {}
  bool reached(EventHandle) override { return true; }
  void synchronize(EventHandle) override {}
  void synchronize_all() override {}
  void release(EventHandle) noexcept override {}

  std::uint64_t granules() const { return granules_; }
  // Granules mapped in total.
  std::uint64_t mapped_granules() const { return mapped_; }

 private:
  std::uint64_t next_ = 2 << 20;
  std::uint64_t granules_ = 0;
  std::uint64_t mapped_ = 0;
};

}  // namespace vdnn::bench
