// The cost of a saved tensor for the thread that saves and reads it, from put to drop, on a backend on which
// nothing happens: one that stays on the device, and one that leaves and is fetched ahead.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/side_by_side.h"
#include "vdnn/tensor_stash.h"

namespace vdnn::bench {
namespace {

constexpr std::uint64_t kTensors = 200;  // of a step
constexpr std::uint64_t kBytes = 4096;
constexpr std::size_t kCapacity = 64;

class NullStashBackend final : public StashBackend {
 public:
  std::string name() const override { return "nothing"; }
  StreamHandle offload_stream() const override { return pointer_to<void>(1); }
  StreamHandle prefetch_stream() const override { return pointer_to<void>(2); }
  bool is_capturing(StreamHandle) override { return false; }
  EventHandle record(StreamHandle) override { return pointer_to<void>(1); }
  void wait(StreamHandle, EventHandle) override {}
  void synchronize(EventHandle) override {}
  void release(EventHandle) noexcept override {}
  void synchronize_copies() override {}
  AddressRange allocate_host(std::uint64_t bytes) override { return {.begin = kBytes, .bytes = bytes}; }
  void free_host(AddressRange) override {}
  void copy_out(AddressRange, AddressRange, const StashIdentity&) override {}
  void copy_in(AddressRange, AddressRange, const StashIdentity&) override {}
};

// Steps of a chain: saved in order, read and dropped in the reverse one.
class Steps {
 public:
  explicit Steps(std::uint64_t budget_bytes)
      : stash_(std::make_unique<NullStashBackend>(), {.budget_bytes = budget_bytes}), handles_(kTensors) {
    step();  // learns
  }

  void step() {
    for (StashHandle& handle : handles_) {
      const PutAnswer put =
          stash_.put({.source = {.begin = kBytes, .bytes = kBytes}, .contents = {.storage = ++storages_}}, 1);
      handle = put.handle;
      if (put.has_released) {
        stash_.released(nullptr, kCapacity);
      }
    }
    for (auto handle = handles_.rbegin(); handle != handles_.rend(); ++handle) {
      read(*handle);
      stash_.drop(*handle);
    }
  }

 private:
  void read(StashHandle handle) {
    const ReadAnswer answer = stash_.read(handle, nullptr, 1);
    if (answer.has_fetches) {
      for (const DueFetch& due : stash_.fetches(handle, kCapacity)) {
        stash_.fetch(due.handle, kBytes, nullptr);
      }
    }
    if (answer.place == StashPlace::kMissing) {
      stash_.ready(handle, nullptr);
    }
  }

  TensorStash stash_;
  std::vector<StashHandle> handles_;
  std::uint64_t storages_ = 0;
};

void saved_tensor(benchmark::State& state) {
  Steps kept(kTensors * kBytes * 2);
  Steps leaving(0);
  side_by_side(state, {{"kept ns", [&kept] { kept.step(); }}, {"leaving ns", [&leaving] { leaving.step(); }}},
               [](double seconds) { return seconds * 1e9 / kTensors; });
}
BENCHMARK(saved_tensor)->Name("stash/saved_tensor")->UseManualTime();

}  // namespace
}  // namespace vdnn::bench
