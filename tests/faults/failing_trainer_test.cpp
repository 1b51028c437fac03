// The whole training loop with its loading thread, evaluations and saves. From the first save on, calls of
// the device and allocations, on whichever thread, fail one at a time: all of them in a long run, otherwise
// every n-th (fault_stride()). The trainer reports each failure with a typed error; nothing hangs, and
// nothing leaks. Training that goes on from the last save, or starts anew, has the usual bits.

#include <gtest/gtest.h>

#include <optional>

#include "tests/data/samples.h"
#include "tests/fakes/failing_device.h"
#include "tests/fakes/heap.h"
#include "tests/faults/fault_case.h"
#include "tests/temporary_directory.h"
#include "vdnn/cpu_device.h"
#include "vdnn/trainer.h"

namespace vdnn::testing {
namespace {

constexpr std::uint64_t kSteps = 5;
constexpr std::uint64_t kSaveEvery = 2;  // steps; in between, one is in flight while another is submitted

// Code above the session does not depend on policies, so one policy with copies represents all.
class FailingTrainer : public TemporaryDirectory {
 protected:
  void SetUp() override {
    TemporaryDirectory::SetUp();
    saved_ = directory_ / "saved";
    usual_ = train({}, [] {});
    last_saved_ = Checkpoint(saved_).info().sha256;
  }

  // One epoch of kSteps steps, and an evaluation whose second batch is short.
  static DatasetSplits short_epoch(const PlannedRun& run) {
    const auto first = [&](std::uint64_t samples) {
      return std::make_unique<FirstSamples>(data_for(run, "synthetic").training, samples);
    };
    return {.training = first(2 * kSteps), .test = first(3)};
  }

  // Runs the whole training, and calls `after_save` after every save. Returns the weights' hash.
  std::string train(const SessionOptions& session, const std::function<void()>& after_save) const {
    TrainOptions options = options_;
    options.session = session;
    options.save = [&](Session& trained) {
      save_checkpoint(saved_, trained);
      after_save();
    };
    return Trainer(run_, data_, options).train({}).weights_sha256;
  }

  // Continues from the checkpoint, which may be that of the last step, or starts anew.
  void expect_the_usual_bits() const {
    TrainOptions options = options_;
    if (std::filesystem::exists(saved_)) {
      const Checkpoint checkpoint(saved_);
      if (checkpoint.info().step == kSteps) {
        EXPECT_EQ(checkpoint.info().sha256, last_saved_);
        return;
      }
      options.start = checkpoint.state(run_);
    }
    EXPECT_EQ(Trainer(run_, data_, options).train({}).weights_sha256, usual_);
  }

  // Trains on a device with `faults`. `arm` enables these or other failures from the first save on, until
  // `disarm`. Returns whether training reported a failure.
  template <class Arm, class Disarm>
  bool failing(DeviceFaults& faults, const Arm& arm, const Disarm& disarm) const {
    std::filesystem::remove(saved_);
    SessionOptions session;
    session.wrap_device = [&](std::unique_ptr<Device> cpu) {
      return std::make_unique<FailingDevice>(std::move(cpu), faults);
    };
    std::string weights;
    const std::string error = typed_error_of([&] {
      try {
        weights = train(session, arm);
      } catch (...) {
        disarm();
        throw;
      }
      disarm();
    });
    EXPECT_EQ(weights, error.empty() ? usual_ : "");
    EXPECT_EQ(faults.leaked_device_bytes, 0U);
    EXPECT_EQ(faults.leaked_pinned_bytes, 0U);
    EXPECT_EQ(faults.leaked_reservations, 0U);
    return !error.empty();
  }

  const PlannedRun run_ = FaultCase::plan(fault_networks()[0], Policy::kOffloadAll);
  const TrainOptions options_{.epochs = 1, .save_every = kSaveEvery};
  const DatasetSplits data_ = short_epoch(run_);
  std::filesystem::path saved_;
  std::string usual_;
  std::string last_saved_;  // the checksum of the last checkpoint, the optimizer's state included
};

TEST_F(FailingTrainer, EachCallFailsOnceAndTheNextTrainingHasTheUsualBits) {
  const std::uint64_t stride = fault_stride(16);
  const std::uint64_t failed = fail_points("call", stride, [&](std::uint64_t fail_at) {
    DeviceFaults faults;
    faults.fail_at = fail_at;
    const bool told = failing(
        faults, [&] { faults.armed = true; }, [&] { faults.armed = false; });
    SCOPED_TRACE(faults.failed);
    EXPECT_EQ(told, !faults.failed.empty());
    expect_the_usual_bits();
    return faults.points.load();
  });
  EXPECT_GE(failed, 100U / stride);
}

TEST_F(FailingTrainer, EachAllocationFailsOnceAndTheNextTrainingHasTheUsualBits) {
  const std::uint64_t stride = fault_stride(16);
  const std::uint64_t failed = fail_points("allocation", stride, [&](std::uint64_t fail_at) {
    const std::uint64_t blocks = heap_blocks();
    std::uint64_t allocations = 0;
    DeviceFaults none;
    std::optional<HeapFailure> failure;
    const auto arm = [&] {
      if (!failure) {
        failure.emplace(fail_at);
      }
    };
    const auto disarm = [&] {
      allocations = failure->allocations();
      failure.reset();
    };
    const bool told = failing(none, arm, disarm);
    EXPECT_EQ(told, allocations >= fail_at);
    EXPECT_EQ(heap_blocks(), blocks) << "a block has leaked";
    expect_the_usual_bits();
    return allocations;
  });
  EXPECT_GE(failed, 100U / stride);
}

// If the caller never returned a batch, the loader's destructor frees it with a frontier of everything
// submitted. With more streams than a frontier stores inline, this frontier allocates memory. Regression: a
// failure of this allocation ended the process.
TEST(FailingLoader, EndsWithABatchOutAndNoMemoryForTheFrontier) {
  const auto device = make_cpu_device({.budget_bytes = 1 << 20, .host_budget_bytes = 1 << 20});
  for (std::size_t stream = 0; stream <= Frontier::kInlinePoints; ++stream) {
    device->submit(device->create_stream("s" + std::to_string(stream)),
                   {.name = "nothing", .reads = {}, .writes = {}, .cost = {}, .run = [](void*) {}});
  }
  PinnedPool pool(*device);
  const DatasetSplits data =
      open_dataset({.text = "synthetic", .sample_dims = {1, 4, 4}, .target_dims = {}, .classes = 2});
  auto loader = std::make_unique<BatchLoader>(*device, pool, *data.training,
                                              BatchOrder{.samples = data.training->size(), .batch = 2}, 0, 1);
  loader->next();
  const HeapFailure failure(1);
  loader.reset();
  EXPECT_GE(failure.allocations(), 1U);
}

}  // namespace
}  // namespace vdnn::testing
