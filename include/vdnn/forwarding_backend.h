#pragma once
// A pool's backend that forwards all calls to another one: the base of backends that change, count or watch
// some of them.

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "vdnn/pool_backend.h"

namespace vdnn {

// As thread-safe as its target, which must outlive it unless the constructor was given its ownership.
class ForwardingBackend : public PoolBackend {
 public:
  explicit ForwardingBackend(PoolBackend& target) : PoolBackend(target.properties()), target_(target) {}
  explicit ForwardingBackend(std::unique_ptr<PoolBackend> target)
      : PoolBackend(target->properties()), owned_(std::move(target)), target_(*owned_) {}

  AddressRange reserve(std::uint64_t bytes) override { return target_.reserve(bytes); }
  void unreserve(AddressRange reservation) override { target_.unreserve(reservation); }
  GranuleHandle create_granule() override { return target_.create_granule(); }
  void destroy_granule(GranuleHandle granule) override { target_.destroy_granule(granule); }
  void map(AddressRange range, std::span<const GranuleHandle> granules) override {
    target_.map(range, granules);
  }
  void unmap(AddressRange range) override { target_.unmap(range); }
  void leave(AddressRange reservation) noexcept override { target_.leave(reservation); }
  std::uint64_t stream_id(StreamHandle stream) override { return target_.stream_id(stream); }
  bool is_of_thread(StreamHandle stream) const override { return target_.is_of_thread(stream); }
  bool is_capturing(StreamHandle stream) override { return target_.is_capturing(stream); }
  EventHandle record(StreamHandle stream) override { return target_.record(stream); }
  void wait(StreamHandle stream, EventHandle event) override { target_.wait(stream, event); }
  bool reached(EventHandle event) override { return target_.reached(event); }
  void synchronize(EventHandle event) override { target_.synchronize(event); }
  void synchronize_all() override { target_.synchronize_all(); }
  void release(EventHandle event) noexcept override { target_.release(event); }

 protected:
  ForwardingBackend(PoolBackend& target, PoolBackendProperties properties)
      : PoolBackend(std::move(properties)), target_(target) {}

  PoolBackend& target() const { return target_; }

 private:
  const std::unique_ptr<PoolBackend> owned_;
  PoolBackend& target_;
};

}  // namespace vdnn
