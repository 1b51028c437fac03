#include "vdnn/predictor.h"

#include "vdnn/device_pool.h"
#include "vdnn/executor.h"
#include "vdnn/parameter_store.h"
#include "vdnn/pinned_pool.h"

namespace vdnn {

namespace {

// More than any schedule takes, less than would overflow when granules are added.
constexpr std::uint64_t kBoundless = std::uint64_t{1} << 50;
// Steps before the one that is measured: the first fills the pools, the second is the first that overlaps.
constexpr int kWarmUpSteps = 2;
// As many batches as the loader stages (dataset.h).
constexpr int kStagedBatches = 3;

// Page-locked memory for the inputs of a step, as a loader would take it.
std::vector<AddressRange> stage_inputs(const Tape& tape, PinnedPool& pinned) {
  std::vector<AddressRange> blocks;
  for (int batch = 0; batch < kStagedBatches; ++batch) {
    for (const ValueId input : tape.inputs()) {
      blocks.push_back(*pinned.allocate_for_host(tape.value(input).bytes));
    }
  }
  return blocks;
}

}  // namespace

Prediction predict(const Tape& tape, const Schedule& schedule, const PredictionOptions& options) {
  const auto device = make_sim_device({.profile = options.profile,
                                       .budget_bytes = kBoundless,
                                       .host_budget_bytes = kBoundless,
                                       .page_aligned_blocks = options.page_aligned_blocks});
  DevicePool pool(*device, {});
  PinnedPool pinned(*device);
  const StreamSet streams(*device);
  ParameterStore parameters(pool, streams[StreamRole::kCompute], tape);
  const std::vector<AddressRange> staging = stage_inputs(tape, pinned);
  const std::span<const AddressRange> inputs(staging.data(), tape.inputs().size());

  Prediction result;
  {
    Executor executor({.device = device.get(),
                       .pool = &pool,
                       .pinned = &pinned,
                       .streams = &streams,
                       .parameters = &parameters,
                       .tape = &tape,
                       .schedule = &schedule});
    for (int step = 0; step < kWarmUpSteps; ++step) {
      executor.submit(inputs, {});
    }
    const double begin = device->finish_seconds();
    const double waited = device->times(streams[StreamRole::kCompute]).waiting_seconds;
    device->set_tracing(options.trace);
    executor.submit(inputs, {});
    result.step_seconds = device->finish_seconds() - begin;
    result.stall_seconds = device->times(streams[StreamRole::kCompute]).waiting_seconds - waited;
    result.average_bytes = executor.memory().average_bytes;
  }
  for (const AddressRange& block : staging) {
    pinned.free(block, {});
  }
  result.peak_bytes = device->counters().peak_committed_bytes;
  result.host_bytes = device->counters().peak_pinned_bytes;
  result.trace = device->take_trace();
  for (StreamId stream = 0; stream < device->stream_count(); ++stream) {
    result.stream_names.push_back(device->stream_name(stream));
  }
  return result;
}

}  // namespace vdnn
