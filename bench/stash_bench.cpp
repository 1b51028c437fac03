// Measures the cost of a saved tensor, from put to drop, for the thread that saves and reads it. The backend
// does nothing. One contender keeps its tensors on the device; the other's tensors leave and are fetched
// ahead of their reads. The benchmark also measures how the cost of planning a step depends on the number of
// its tensors.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/side_by_side.h"
#include "src/base/random.h"
#include "src/stash/step_plan.h"
#include "vdnn/tensor_stash.h"

namespace vdnn::bench {
namespace {

constexpr std::uint64_t kTensors = 200;  // per step
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

// Steps of a chain: tensors are saved in order, and read and dropped in reverse order.
class Steps {
 public:
  explicit Steps(std::uint64_t budget_bytes)
      : stash_(std::make_unique<NullStashBackend>(), {.budget_bytes = budget_bytes}), handles_(kTensors) {
    step();  // the stash learns the first step
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

// A chain of tensors of many sizes, read in reverse order.
stash::StepRecord chain(std::uint32_t tensors) {
  stash::StepRecord step;
  SplitMix64 random(tensors);
  std::uint64_t in_use = 0;
  const auto add = [&](stash::StepEvent::Kind kind, std::uint32_t tensor) {
    step.events.push_back({.kind = kind, .tensor = tensor, .in_use_bytes = in_use});
  };
  for (std::uint32_t i = 0; i < tensors; ++i) {
    step.tensors.push_back({.bytes = kBytes * (1 + random.next() % 64), .signature = i});
    in_use += step.tensors.back().bytes;
    add(stash::StepEvent::Kind::kSave, i);
  }
  for (std::uint32_t i = tensors; i-- > 0;) {
    add(stash::StepEvent::Kind::kRead, i);
    in_use -= step.tensors[i].bytes;
    step.tensors[i].dropped_after = step.events.size();
  }
  return step;
}

// The cost of one plan. A training thread plans once for each kind of step.
void plan(benchmark::State& state) {
  const auto tensors = static_cast<std::uint32_t>(state.range(0));
  const stash::StepRecord step = chain(tensors);
  const stash::StepLimits limits{.budget_bytes = step.events[tensors].in_use_bytes / 2,
                                 .ahead_bytes = 128 * kBytes,
                                 .flight_bytes = 128 * kBytes};
  for ([[maybe_unused]] const auto _ : state) {
    benchmark::DoNotOptimize(stash::plan_step(step, limits));
  }
  state.SetComplexityN(state.range(0));
}
BENCHMARK(plan)->Name("stash/plan")->RangeMultiplier(2)->Range(400, 12800)->Complexity(benchmark::oNLogN);

}  // namespace
}  // namespace vdnn::bench
