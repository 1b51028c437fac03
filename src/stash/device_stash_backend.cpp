#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "vdnn/device.h"
#include "vdnn/stash_backend.h"

namespace vdnn {

namespace {

class DeviceStashBackend final : public StashBackend {
 public:
  explicit DeviceStashBackend(Device& device)
      : device_(device),
        events_(make_pool_backend(device)),
        offload_(device.create_stream("offload")),
        prefetch_(device.create_stream("prefetch")) {}
  // Frees the blocks that a stash could not free because a call failed at its end.
  ~DeviceStashBackend() override {
    try {
      synchronize_copies();
      while (!blocks_.empty()) {
        free_host({.begin = blocks_.begin()->first, .bytes = blocks_.begin()->second});
      }
    } catch (...) {
      // The device frees the remaining blocks at its own end.
    }
  }

  std::string name() const override { return device_.properties().name; }
  StreamHandle offload_stream() const override { return stream_handle(offload_); }
  StreamHandle prefetch_stream() const override { return stream_handle(prefetch_); }

  std::uint64_t stream_id(StreamHandle stream) override { return events_->stream_id(stream); }
  bool is_capturing(StreamHandle stream) override { return events_->is_capturing(stream); }
  EventHandle record(StreamHandle stream) override { return events_->record(stream); }
  void wait(StreamHandle stream, EventHandle event) override { events_->wait(stream, event); }
  void synchronize(EventHandle event) override { events_->synchronize(event); }
  void release(EventHandle event) noexcept override { events_->release(event); }
  void synchronize_copies() override {
    for (const StreamId stream : {offload_, prefetch_}) {
      device_.synchronize(device_.frontier(stream));
    }
  }

  AddressRange allocate_host(std::uint64_t bytes) override {
    const std::lock_guard lock(mutex_);
    const AddressRange block = device_.allocate_pinned(bytes);
    try {
      blocks_.emplace(block.begin, block.bytes);
    } catch (...) {
      device_.free_pinned(block);
      throw;
    }
    return block;
  }
  void free_host(AddressRange block) override {
    const std::lock_guard lock(mutex_);
    device_.free_pinned(block);
    blocks_.erase(block.begin);
  }

  void copy_out(AddressRange block, AddressRange source, const StashIdentity& contents) override {
    const std::uint64_t version = contents_version(contents);
    device_.copy(offload_, {.name = "offload",
                            .direction = CopyDirection::kDeviceToHost,
                            .destination = {.range = block, .version = version},
                            .source = {.range = source, .version = version}});
  }
  void copy_in(AddressRange target, AddressRange block, const StashIdentity& contents) override {
    const std::uint64_t version = contents_version(contents);
    device_.copy(prefetch_, {.name = "prefetch",
                             .direction = CopyDirection::kHostToDevice,
                             .destination = {.range = target, .version = version},
                             .source = {.range = block, .version = version}});
  }

 private:
  Device& device_;
  const std::unique_ptr<DevicePoolBackend> events_;
  const StreamId offload_;
  const StreamId prefetch_;
  std::mutex mutex_;                               // guards the member below
  std::map<std::uint64_t, std::uint64_t> blocks_;  // begin and bytes of those that are page-locked
};

}  // namespace

std::unique_ptr<StashBackend> make_stash_backend(Device& device) {
  return std::make_unique<DeviceStashBackend>(device);
}

// Never returns 0, since devices do not check contents of version 0.
std::uint64_t contents_version(const StashIdentity& contents) {
  constexpr int kVersionBits = 16;
  return (contents.storage << kVersionBits) + contents.version + 1;
}

}  // namespace vdnn
