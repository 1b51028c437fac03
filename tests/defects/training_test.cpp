// Defects of training loops (docs/known_defects.md), under every policy on the `cpu` device.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "allocator/pinned_block.h"
#include "src/base/random.h"
#include "tests/fakes/failing_device.h"
#include "tests/train/every_layer.h"
#include "tests/train/training_runs.h"
#include "vdnn/error.h"
#include "vdnn/session.h"

namespace vdnn::testing::training_test {
namespace {

constexpr std::int64_t kBatch = 4;
constexpr std::int64_t kClasses = 3;

// Doubles its input, but throws in one launch.
class Throwing final : public CustomLayer {
 public:
  std::string kind() const override { return "throwing"; }
  TensorType output(std::span<const TensorType> inputs) const override { return inputs[0]; }
  LayerRecipe describe(const CustomQuestion& question) const override { return doubling_.describe(question); }
  void run(const CustomLaunch& launch) const override {
    if (launches_++ == throw_at) {
      throw std::runtime_error("out of luck");
    }
    doubling_.run(launch);
  }

  int launches() const { return launches_; }
  int throw_at = -1;

 private:
  Doubling doubling_;
  mutable int launches_ = 0;  // written only by the stream's thread
};

Network network_with(const std::shared_ptr<const CustomLayer>& layer) {
  NetworkBuilder net("with a custom layer", {kBatch, 2, 8, 8});
  Tensor x = net.convolution("conv1", net.input(),
                             {.filters = 4, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
  x = net.custom("custom", {net.relu("relu", x)}, layer);
  x = net.convolution("conv2", x, {.filters = 4, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
  net.softmax_cross_entropy("loss", net.fully_connected("fc", x, {.outputs = kClasses}));
  return std::move(net).build();
}

RunOptions options(Policy policy) {
  return {.device = "cpu",
          .memory_bytes = std::uint64_t{64} << 20,
          .host_memory_bytes = std::uint64_t{64} << 20,
          .threads = 1,
          .policy = policy};
}

struct Batch {
  std::vector<float> images = std::vector<float>(kBatch * 2 * 8 * 8);
  std::vector<std::int32_t> classes;

  Batch() {
    SplitMix64 random(1);
    for (float& value : images) {
      value = random.symmetric();
    }
    for (std::int32_t i = 0; i < kBatch; ++i) {
      classes.push_back(i % kClasses);
    }
  }
  std::array<Session::Bytes, 2> inputs() const {
    return {std::as_bytes(std::span(images)), std::as_bytes(std::span(classes))};
  }
};

// Trains, with an evaluation after each step.
void train(Session& session, const Batch& batch, int steps) {
  for (int step = 0; step < steps; ++step) {
    session.step(batch.inputs(), 0.1F);
    session.evaluate(batch.inputs());
  }
}

class KnownDefectsOfTraining : public ::testing::TestWithParam<Policy> {
 protected:
  static PlannedRun run_with(const std::shared_ptr<const CustomLayer>& layer) {
    return plan_run(network_with(layer), options(GetParam()));
  }
  // The weights' hash after an undisturbed training run.
  std::string weights_after(int steps) const {
    Session session(run_with(std::make_shared<Throwing>()), {.seed = 5});
    for (int step = 0; step < steps; ++step) {
      session.step(batch_.inputs(), 0.1F);
    }
    return session.weights_sha256();
  }

  const Batch batch_;
};

INSTANTIATE_TEST_SUITE_P(Policies, KnownDefectsOfTraining, ::testing::ValuesIn(kPolicies),
                         [](const auto& test) { return to_string(test.param); });

// --- 4 -----------------------------------------------------------------------------------------------------

bool alike(const DeviceCounters& a, const DeviceCounters& b) {
  return a.commits == b.commits && a.decommits == b.decommits &&
         a.pinned_allocations == b.pinned_allocations && a.pinned_frees == b.pinned_frees;
}

// Page-locking and unpinning stall the device. After the first step and evaluation, the loop does neither,
// and commits no device memory. The test would notice a pool that gives blocks back between steps.
TEST_P(KnownDefectsOfTraining, PageLockingInsideTheLoop) {
  Session session(run_with(std::make_shared<Throwing>()));
  train(session, batch_, 1);
  const DeviceCounters first = session.device().counters();
  train(session, batch_, 10);
  EXPECT_TRUE(alike(session.device().counters(), first));

  session.finish();
  session.pinned().trim();
  train(session, batch_, 1);
  EXPECT_FALSE(alike(session.device().counters(), first));
}

// --- 9 -----------------------------------------------------------------------------------------------------

template <class Action>
bool runs_out_of_memory(const Action& action) {
  try {
    action();
  } catch (const OutOfMemory&) {
    return true;
  }
  return false;
}

// TRL#5700: feature maps stashed on the host stayed there after an exception. Here a step repeatedly runs out
// of page-locked memory in its middle. The session then holds no page-locked memory. restore() continues in
// the predicted memory and with the usual bits.
TEST_P(KnownDefectsOfTraining, StashedMapsKeptAfterAnException) {
  PlannedRun run = run_with(std::make_shared<Throwing>());
  const Prediction predicted = run.prediction;
  run.target.host_budget_bytes = predicted.host_bytes;
  Session session(std::move(run), {.seed = 5});
  session.step(batch_.inputs(), 0.1F);
  const TrainingState good = session.state();
  session.finish();
  ASSERT_EQ(session.pinned().statistics().in_use_bytes, 0U);
  constexpr int kFailures = 8;
  int thrown = 0;
  for (int failure = 0; failure < kFailures; ++failure) {
    SCOPED_TRACE("failure " + std::to_string(failure));
    // Another program holds all but a part of the host's memory, so only some maps fit.
    std::vector<AddressRange> hoard;
    while (const auto block = session.pinned().allocate_for_host(64)) {
      hoard.push_back(*block);
    }
    for (std::size_t back = hoard.size() * static_cast<std::size_t>(failure) / 16; back > 0; --back) {
      session.pinned().free(hoard.back(), {});
      hoard.pop_back();
    }
    thrown += runs_out_of_memory([&] { session.step(batch_.inputs(), 0.1F); }) ? 1 : 0;
    for (const AddressRange& block : hoard) {
      session.pinned().free(block, {});
    }
    session.restore(good);
    session.finish();
    EXPECT_EQ(session.pinned().statistics().in_use_bytes, 0U);
  }
  // If the plan offloads no map, a step needs host memory only for its inputs.
  EXPECT_GE(thrown, session.run().plan.transfers.empty() ? 1 : kFailures);
  session.step(batch_.inputs(), 0.1F);
  EXPECT_EQ(session.weights_sha256(), weights_after(2));
  EXPECT_EQ(session.device().counters().peak_committed_bytes, predicted.peak_bytes);
  EXPECT_LE(session.device().counters().peak_pinned_bytes, predicted.host_bytes);
}

// A layer throws in either pass of any of three steps. The caller that waits gets the error. Training from
// the earlier checkpoint ends with the usual bits, in the failed session as in a new one.
TEST_P(KnownDefectsOfTraining, StashedMapsKeptAfterALayerThrew) {
  const std::string usual = weights_after(3);
  for (int throw_at = 0; throw_at < 6; ++throw_at) {
    SCOPED_TRACE("launch " + std::to_string(throw_at));
    const auto layer = std::make_shared<Throwing>();
    layer->throw_at = throw_at;
    Session failed(run_with(layer), {.seed = 5});
    TrainingState state = failed.state();
    const auto train_until_it_throws = [&] {
      for (int step = 0; step < 3; ++step) {
        failed.step(batch_.inputs(), 0.1F);
        state = failed.state();
      }
    };
    EXPECT_THROW(train_until_it_throws(), Error);
    layer->throw_at = -1;
    Session fresh(run_with(layer), {.seed = 1});
    for (Session* const session : {&failed, &fresh}) {
      session->restore(state);
      while (session->steps() < 3) {
        session->step(batch_.inputs(), 0.1F);
      }
      EXPECT_EQ(session->weights_sha256(), usual);
      EXPECT_EQ(session->device().counters().peak_committed_bytes, session->run().prediction.peak_bytes);
    }
  }
}

// Submits two steps of the batch without waiting for them.
void submit_two(Session& session, const Batch& batch) {
  const std::array<Session::Bytes, 2> inputs = batch.inputs();
  PinnedBlock block(session.pinned(), inputs[0].size() + inputs[1].size(), "for a batch");
  std::array<AddressRange, 2> ranges;
  std::uint64_t at = block.range().begin;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::memcpy(pointer_to<std::byte>(at), inputs[i].data(), inputs[i].size());
    ranges[i] = {.begin = at, .bytes = inputs[i].size()};
    at += inputs[i].size();
  }
  block.used_until(session.submit(ranges, 0.1F).inputs_copied);
  block.used_until(session.submit(ranges, 0.1F).inputs_copied);
}

// A session ends early, with two steps in flight. It finishes their work before it frees the memory that the
// work uses, so the layer has run in both passes of both steps.
TEST_P(KnownDefectsOfTraining, SessionThatEndsWithStepsInFlight) {
  const auto layer = std::make_shared<Throwing>();
  {
    Session session(run_with(layer), {.seed = 5, .delay_seed = 3});
    submit_two(session, batch_);
  }
  EXPECT_EQ(layer->launches(), 4);
}

// However a session ends, its device is destroyed with nothing committed, nothing page-locked and no
// reservation. A session may end with steps in flight, one of which may be about to throw, or after it has
// reported an error.
TEST_P(KnownDefectsOfTraining, MemoryKeptByASessionThatEndedEarly) {
  const auto run_two_steps = [&](Session& session, bool wait) {
    if (!wait) {
      submit_two(session, batch_);
      return;
    }
    session.step(batch_.inputs(), 0.1F);
    session.step(batch_.inputs(), 0.1F);
    session.finish();  // step() returns as soon as the loss is available
  };
  for (int throw_at = -1; throw_at < 4; ++throw_at) {
    for (const bool wait : {false, true}) {
      SCOPED_TRACE("launch " + std::to_string(throw_at) + (wait ? ", waited for" : ", in flight"));
      const auto layer = std::make_shared<Throwing>();
      layer->throw_at = throw_at;
      // Nonzero values that the device must replace when it is destroyed.
      DeviceFaults device{.leaked_device_bytes = 1, .leaked_pinned_bytes = 1, .leaked_reservations = 1};
      SessionOptions options{.seed = 5, .delay_seed = 3};
      options.wrap_device = [&](std::unique_ptr<Device> cpu) {
        return std::make_unique<FailingDevice>(std::move(cpu), device);
      };
      bool told = false;
      {
        Session session(run_with(layer), options);
        try {
          run_two_steps(session, wait);
        } catch (const Error&) {
          told = true;
        }
      }
      // A failed stream refuses work, so even a caller that does not wait may get the error.
      EXPECT_TRUE(wait ? told == (throw_at >= 0) : !told || throw_at >= 0);
      EXPECT_EQ(device.leaked_device_bytes, 0U);
      EXPECT_EQ(device.leaked_pinned_bytes, 0U);
      EXPECT_EQ(device.leaked_reservations, 0U);
    }
  }
}

}  // namespace
}  // namespace vdnn::testing::training_test
