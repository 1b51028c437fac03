#pragma once
// All parts that an executor needs on one device, with page-locked memory for the batches.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tests/exec/hash_communicator.h"
#include "tests/exec/hash_program.h"
#include "vdnn/cpu_device.h"
#include "vdnn/device_pool.h"
#include "vdnn/executor.h"
#include "vdnn/parameter_store.h"
#include "vdnn/pinned_pool.h"
#include "vdnn/plan.h"
#include "vdnn/schedule.h"

namespace vdnn::testing {

// Batches as a loader stages them (dataset.h): each has its own block, so that page-locked memory is as
// predicted.
class StagedInputs {
 public:
  StagedInputs(PinnedPool& pinned, const Tape& tape) : pinned_(pinned) {
    std::uint64_t bytes = 0;
    for (const ValueId input : tape.inputs()) {
      bytes += tape.value(input).bytes;
    }
    for (std::uint32_t batch = 0; batch < kStagedBatches; ++batch) {
      blocks_.push_back(pinned.allocate_for_host(bytes).value());
      std::uint64_t begin = blocks_.back().begin;
      for (const ValueId input : tape.inputs()) {
        inputs_.push_back({.begin = begin, .bytes = tape.value(input).bytes});
        begin += inputs_.back().bytes;
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
    const std::size_t count = inputs_.size() / kStagedBatches;
    return std::span(inputs_).subspan(step % kStagedBatches * count, count);
  }

 private:
  PinnedPool& pinned_;
  std::vector<AddressRange> blocks_;
  std::vector<AddressRange> inputs_;
};

struct RigOptions {
  // Packs the parameters that the rig uploads (hash_program.h). If null, parameters are undefined, which
  // suffices for ops that compute nothing.
  OpProgram* program = nullptr;
  // If false, the uploaded values are arbitrary, and `program` packs them in its own way.
  bool contents = true;
  std::uint64_t pool_budget = 0;  // 0: the device's
};

// Allocates memory in the same order as a trainer.
class ExecutorRig {
 public:
  ExecutorRig(Device& on, const Tape& training, const RigOptions& options = {})
      : device(on),
        pool(on, {.budget_bytes = options.pool_budget}),
        pinned(on),
        streams(on, stream_roles(training)),
        communicator(on, training),
        parameters(pool, streams[StreamRole::kCompute], training),
        inputs(pinned, (upload(training, options), training)) {}

  ExecutorParts parts(const Tape& tape, const Schedule& schedule, OpProgram* program = nullptr) {
    return {.device = device,
            .pool = pool,
            .pinned = pinned,
            .streams = streams,
            .parameters = parameters,
            .tape = tape,
            .schedule = schedule,
            .program = program,
            .communicator = tape.collective() ? &communicator : nullptr};
  }

  Device& device;
  DevicePool pool;
  PinnedPool pinned;
  StreamSet streams;
  HashCommunicator communicator;
  ParameterStore parameters;
  StagedInputs inputs;

 private:
  void upload(const Tape& training, const RigOptions& options) {
    const StreamId stream = streams[StreamRole::kCompute];
    if (options.program != nullptr && options.contents) {
      parameters.upload(pinned, stream, options.program, hash_parameters(training));
    } else if (options.program != nullptr || !device.properties().touches_memory) {
      // The values do not matter here, only their versions and copies do. Making values for large networks is
      // slow.
      std::vector<std::vector<std::vector<float>>> states;
      for (const TapeParameter& parameter : training.parameters()) {
        states.emplace_back(parameter.state.size());
      }
      parameters.upload(pinned, stream, options.program, std::vector<std::vector<float>>(states.size()),
                        states);
    }
    clear_gradient_sums(training, stream);
  }

  // The sums start at zero, as in Interpreter.
  void clear_gradient_sums(const Tape& training, StreamId stream) {
    const std::vector<ParameterStore::Slot*> slots = parameters.slots(training);
    for (const TapeParameter& parameter : training.parameters()) {
      if (parameter.gradient_sum == kNone) {
        continue;
      }
      ParameterStore::Slot& sum = *slots[parameter.gradient_sum];
      sum.version = parameters.next_version();
      const Access write{.range = sum.range, .version = sum.version};
      device.submit(stream, {.name = "clear a sum of gradients",
                             .reads = {},
                             .writes = {&write, 1},
                             .cost = {},
                             .run = [range = sum.range](void*) {
                               std::fill_n(pointer_to<std::byte>(range.begin), range.bytes, std::byte{});
                             }});
    }
  }
};

// Steps like a training loop: waits for a step's metrics after submitting the next step.
class StepLoop {
 public:
  StepLoop(const ExecutorRig& rig, Executor& executor, std::uint32_t micro_steps = 1)
      : rig_(rig), executor_(executor), micro_steps_(micro_steps) {}

  void step() {
    const StepScalars scalars{.micro_step = static_cast<std::uint32_t>(steps_ % micro_steps_),
                              .micro_steps = micro_steps_};
    const StepTicket next = executor_.submit(rig_.inputs.of_step(steps_++), scalars);
    if (last_) {
      executor_.wait(*last_);
    }
    last_ = next;
  }
  void run(std::uint64_t steps) {
    for (std::uint64_t i = 0; i < steps; ++i) {
      step();
    }
  }

 private:
  const ExecutorRig& rig_;
  Executor& executor_;
  std::uint32_t micro_steps_;
  std::uint64_t steps_ = 0;
  std::optional<StepTicket> last_;
};

inline constexpr std::array kPolicies{Policy::kBaseline, Policy::kOffloadNone, Policy::kOffloadAll,
                                      Policy::kOffloadConv};

inline Schedule schedule_of(const Tape& tape, Policy policy) {
  return make_schedule(tape, make_plan(tape, {.policy = policy}));
}

// Expects that nothing holds memory of the device any more.
inline void expect_nothing_held(const Device& device) {
  const DeviceCounters counters = device.counters();
  EXPECT_EQ(counters.committed_bytes, 0U);
  EXPECT_EQ(counters.pinned_bytes, 0U);
  EXPECT_EQ(counters.pinned_allocations, counters.pinned_frees);
}

}  // namespace vdnn::testing
