#pragma once
// Failure injection: a stash's backend in which one call fails once.

#include <cstdint>
#include <memory>
#include <utility>

#include "tests/stash/forwarding_stash_backend.h"
#include "vdnn/error.h"

namespace vdnn::testing {

// Counts the calls that may fail. The call that raises the count to `fail_at` fails.
struct StashFaults {
  std::uint64_t calls = 0;
  std::uint64_t fail_at = 0;
  std::string failed;
};

class FailingStashBackend final : public ForwardingStashBackend {
 public:
  // `faults` must outlive the backend.
  FailingStashBackend(std::unique_ptr<StashBackend> target, StashFaults& faults)
      : ForwardingStashBackend(std::move(target)), faults_(faults) {}

  void begin_calls() override {
    strike("begin_calls");
    ForwardingStashBackend::begin_calls();
  }
  std::uint64_t stream_id(StreamHandle stream) override {
    strike("stream_id");
    return ForwardingStashBackend::stream_id(stream);
  }
  bool is_capturing(StreamHandle stream) override {
    strike("is_capturing");
    return ForwardingStashBackend::is_capturing(stream);
  }
  EventHandle record(StreamHandle stream) override {
    strike("record");
    return ForwardingStashBackend::record(stream);
  }
  void wait(StreamHandle stream, EventHandle event) override {
    strike("wait");
    ForwardingStashBackend::wait(stream, event);
  }
  void synchronize(EventHandle event) override {
    strike("synchronize");
    ForwardingStashBackend::synchronize(event);
  }
  void synchronize_copies() override {
    strike("synchronize_copies");
    ForwardingStashBackend::synchronize_copies();
  }
  AddressRange allocate_host(std::uint64_t bytes) override {
    strike("allocate_host");
    return ForwardingStashBackend::allocate_host(bytes);
  }
  void copy_out(AddressRange block, AddressRange source, const StashIdentity& contents) override {
    strike("copy_out");
    ForwardingStashBackend::copy_out(block, source, contents);
  }
  void copy_in(AddressRange target, AddressRange block, const StashIdentity& contents) override {
    strike("copy_in");
    ForwardingStashBackend::copy_in(target, block, contents);
  }

 private:
  void strike(const char* call) {
    if (++faults_.calls == faults_.fail_at) {
      faults_.failed = call;
      throw DeviceError(std::string(call) + " was made to fail");
    }
  }

  StashFaults& faults_;
};

}  // namespace vdnn::testing
