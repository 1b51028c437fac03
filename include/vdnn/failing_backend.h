#pragma once
// Failure injection: a pool's backend that forwards all calls to another one, except for those that it is
// told to fail. Tests use it to see how a program behaves when memory runs out or the device refuses.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "vdnn/forwarding_backend.h"

namespace vdnn {

// As thread-safe as the target and `strikes` are.
class FailingBackend final : public ForwardingBackend {
 public:
  // `strikes(call)` is called before each call that may fail, with its name; it throws if the call is to
  // fail.
  FailingBackend(std::unique_ptr<PoolBackend> backend, std::function<void(const char* call)> strikes)
      : ForwardingBackend(std::move(backend)), strikes_(std::move(strikes)) {}

  AddressRange reserve(std::uint64_t bytes) override { return at("reserve").reserve(bytes); }
  void unreserve(AddressRange reservation) override { at("unreserve").unreserve(reservation); }
  GranuleHandle create_granule() override { return at("create_granule").create_granule(); }
  void destroy_granule(GranuleHandle granule) override { at("destroy_granule").destroy_granule(granule); }
  void map(AddressRange range, std::span<const GranuleHandle> granules) override {
    at("map").map(range, granules);
  }
  void unmap(AddressRange range) override { at("unmap").unmap(range); }
  std::uint64_t stream_id(StreamHandle stream) override { return at("stream_id").stream_id(stream); }
  bool is_capturing(StreamHandle stream) override { return at("is_capturing").is_capturing(stream); }
  EventHandle record(StreamHandle stream) override { return at("record").record(stream); }
  void wait(StreamHandle stream, EventHandle event) override { at("wait").wait(stream, event); }
  bool reached(EventHandle event) override { return at("reached").reached(event); }
  void synchronize(EventHandle event) override { at("synchronize").synchronize(event); }
  void synchronize_all() override { at("synchronize_all").synchronize_all(); }

 private:
  PoolBackend& at(const char* call) {
    strikes_(call);
    return target();
  }

  std::function<void(const char*)> strikes_;
};

}  // namespace vdnn
