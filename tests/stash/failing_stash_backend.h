#pragma once
// Failure injection: a stash's backend in which one call fails once.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "tests/stash/forwarding_stash_backend.h"
#include "vdnn/error.h"

namespace vdnn::testing {

// How a call of a stash's device fails.
struct CallFailure {
  std::string_view call;           // counts only calls of this name; empty: all calls
  bool is_lack_of_memory = false;  // otherwise the device reports an invalid value
};

// Counts the calls that may fail. Of those that `failure` counts, the one that raises its count to `fail_at`
// fails.
struct StashFaults {
  CallFailure failure;
  std::uint64_t fail_at = 0;  // 0: none fails
  std::string failed;
  std::map<std::string, std::uint64_t, std::less<>> calls;  // by name; "": all

  std::uint64_t count(std::string_view name) const {
    const auto found = calls.find(name);
    return found == calls.end() ? 0 : found->second;
  }
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
  void free_host(AddressRange block) override {
    strike("free_host");
    ForwardingStashBackend::free_host(block);
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
  void strike(const std::string& call) {
    ++faults_.calls[""];
    ++faults_.calls[call];
    const CallFailure& failure = faults_.failure;
    const bool is_counted = failure.call.empty() || failure.call == call;
    if (!is_counted || faults_.count(failure.call) != faults_.fail_at) {
      return;
    }
    faults_.failed = call;
    if (failure.is_lack_of_memory) {
      throw OutOfMemory(call + " was made to fail", {});
    }
    throw DeviceError(call + " was made to fail");
  }

  StashFaults& faults_;
};

}  // namespace vdnn::testing
