#pragma once
// A stash's backend that forwards all calls to another one. Base of backends that change, count or refuse one
// call.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "vdnn/stash_backend.h"

namespace vdnn::testing {

class ForwardingStashBackend : public StashBackend {
 public:
  explicit ForwardingStashBackend(std::unique_ptr<StashBackend> target) : target_(std::move(target)) {}

  std::string name() const override { return target_->name(); }
  StreamHandle offload_stream() const override { return target_->offload_stream(); }
  StreamHandle prefetch_stream() const override { return target_->prefetch_stream(); }
  void begin_calls() override { target_->begin_calls(); }
  void end_calls() noexcept override { target_->end_calls(); }
  std::uint64_t stream_id(StreamHandle stream) override { return target_->stream_id(stream); }
  bool is_capturing(StreamHandle stream) override { return target_->is_capturing(stream); }
  EventHandle record(StreamHandle stream) override { return target_->record(stream); }
  void wait(StreamHandle stream, EventHandle event) override { target_->wait(stream, event); }
  void synchronize(EventHandle event) override { target_->synchronize(event); }
  void release(EventHandle event) noexcept override { target_->release(event); }
  void synchronize_copies() override { target_->synchronize_copies(); }
  AddressRange allocate_host(std::uint64_t bytes) override { return target_->allocate_host(bytes); }
  void free_host(AddressRange block) override { target_->free_host(block); }
  void copy_out(AddressRange block, AddressRange source, const StashIdentity& contents) override {
    target_->copy_out(block, source, contents);
  }
  void copy_in(AddressRange target, AddressRange block, const StashIdentity& contents) override {
    target_->copy_in(target, block, contents);
  }
  Times times() noexcept override { return target_->times(); }

 private:
  const std::unique_ptr<StashBackend> target_;
};

}  // namespace vdnn::testing
