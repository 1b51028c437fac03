#pragma once
// Everything that an executor is handed, on one device, and page-locked memory for the batches.

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "exec/hash_program.h"
#include "vdnn/cpu_device.h"
#include "vdnn/device_pool.h"
#include "vdnn/executor.h"
#include "vdnn/parameter_store.h"
#include "vdnn/pinned_pool.h"
#include "vdnn/plan.h"
#include "vdnn/schedule.h"

namespace vdnn::testing {

// As many batches as a loader stages (dataset.h), so that page-locked memory comes out as predicted.
class StagedInputs {
 public:
  static constexpr std::size_t kBatches = 3;

  StagedInputs(PinnedPool& pinned, const Tape& tape) : pinned_(pinned), inputs_(tape.inputs().size()) {
    for (std::size_t batch = 0; batch < kBatches; ++batch) {
      for (const ValueId input : tape.inputs()) {
        blocks_.push_back(pinned.allocate_for_host(tape.value(input).bytes).value());
      }
    }
  }
  ~StagedInputs() {
    for (const AddressRange& block : blocks_) {
      pinned_.free(block, {});
    }
  }
  StagedInputs(const StagedInputs&) = delete;
  StagedInputs& operator=(const StagedInputs&) = delete;

  std::span<const AddressRange> of_step(std::uint64_t step) const {
    return std::span(blocks_).subspan(step % kBatches * inputs_, inputs_);
  }

 private:
  PinnedPool& pinned_;
  std::size_t inputs_;
  std::vector<AddressRange> blocks_;
};

struct RigOptions {
  // Uploads fresh parameters (hash_program.h). Null: the parameters stay undefined, and nothing runs.
  OpProgram* program = nullptr;
  std::uint64_t pool_budget = 0;  // 0: the device's
};

// Takes memory in the order in which a trainer does.
class ExecutorRig {
 public:
  ExecutorRig(Device& on, const Tape& training, const RigOptions& options = {})
      : device(on),
        pool(on, {.budget_bytes = options.pool_budget}),
        pinned(on),
        streams(on),
        parameters(pool, streams[StreamRole::kCompute], training),
        inputs(pinned, (upload(training, options.program), training)) {}

  ExecutorParts parts(const Tape& tape, const Schedule& schedule, OpProgram* program = nullptr) {
    return {.device = &device,
            .pool = &pool,
            .pinned = &pinned,
            .streams = &streams,
            .parameters = &parameters,
            .tape = &tape,
            .schedule = &schedule,
            .program = program};
  }

  Device& device;
  DevicePool pool;
  PinnedPool pinned;
  StreamSet streams;
  ParameterStore parameters;
  StagedInputs inputs;

 private:
  void upload(const Tape& training, OpProgram* program) {
    if (program != nullptr || !device.properties().touches_memory) {
      parameters.upload(pinned, streams[StreamRole::kCompute], program, hash_parameters(training));
    }
  }
};

inline constexpr std::array kPolicies{Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadAll,
                                      Policy::kOffloadConv};

inline Schedule schedule_of(const Tape& tape, Policy policy) {
  return make_schedule(tape, make_plan(tape, {.policy = policy}));
}

// Nothing of the device's memory is held any more.
inline void expect_nothing_held(const Device& device) {
  const DeviceCounters counters = device.counters();
  EXPECT_EQ(counters.committed_bytes, 0U);
  EXPECT_EQ(counters.pinned_bytes, 0U);
  EXPECT_EQ(counters.pinned_allocations, counters.pinned_frees);
}

}  // namespace vdnn::testing
