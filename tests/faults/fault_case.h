#pragma once
// The cases in which calls fail: three networks under every policy. Each has a checkpoint to continue from,
// and the expected weights after one more step, whatever failed earlier.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <new>
#include <string>
#include <tuple>
#include <vector>

#include "tests/extent.h"
#include "tests/train/every_layer.h"
#include "tests/train/random_inputs.h"
#include "tests/train/training_runs.h"
#include "vdnn/checkpoint.h"
#include "vdnn/session.h"
#include "vdnn/zoo.h"

namespace vdnn::testing {

struct FaultNetwork {
  std::string name;
  std::function<Network()> make;
  TrainingOptions training;
};

inline std::vector<FaultNetwork> fault_networks() {
  return {{.name = "lenet",
           .make =
               [] {
                 return make_model({.model = "lenet", .input = {1, 16, 16}, .batch = 2});
               },
           .training = {.optimizer = SgdSpec{.momentum = 0.9F}}},
          {.name = "every_layer_in_the_plane",
           .make =
               [] {
                 return every_layer_network({2, 3, 8, 8});
               },
           .training = {.optimizer = AdamSpec{}, .clip_norm = 1.0F}},
          {.name = "every_layer_in_space",
           .make =
               [] {
                 return every_layer_network({1, 2, 8, 8, 8});
               },
           .training = {.optimizer = AdamSpec{.decoupled = true}}}};
}

inline void one_step(Session& session) {
  const std::vector<std::vector<std::byte>> inputs = random_inputs(*session.run().tape, session.steps());
  const std::vector<Session::Bytes> spans(inputs.begin(), inputs.end());
  session.step(spans, 0.01F);
}

// The index of a network of fault_networks(), and a policy. Each pair is one test.
using FaultParameter = std::tuple<std::size_t, Policy>;

inline auto fault_parameters() {
  return ::testing::Combine(::testing::Range<std::size_t>(0, fault_networks().size()),
                            ::testing::ValuesIn(kPolicies));
}

inline std::string name_of_fault_parameter(const ::testing::TestParamInfo<FaultParameter>& info) {
  return fault_networks()[std::get<0>(info.param)].name + "_" + to_string(std::get<1>(info.param));
}

// One planned run with a checkpoint of its first step.
class FaultCase {
 public:
  FaultCase(const FaultParameter& parameter, const std::filesystem::path& directory)
      : checkpoint(directory / "checkpoint"),
        saved(directory / "saved"),
        run(plan(fault_networks()[std::get<0>(parameter)], std::get<1>(parameter))) {
    Session session(run);
    one_step(session);
    save_checkpoint(checkpoint, session);
    state = session.state();
    one_step(session);
    usual = session.weights_sha256();
  }

  // A fresh session must go on from the checkpoint as if nothing had ever failed.
  void expect_the_usual_bits() const {
    Session fresh(run);
    load_checkpoint(checkpoint, fresh);
    one_step(fresh);
    EXPECT_EQ(fresh.weights_sha256(), usual);
  }
  // The failed session must also go on from the restored state as if nothing had ever failed.
  void expect_mended(Session& session) const {
    session.restore(state);
    one_step(session);
    EXPECT_EQ(session.weights_sha256(), usual);
  }

  static PlannedRun plan(const FaultNetwork& network, Policy policy) {
    return plan_run(network.make(), {.device = "cpu",
                                     .memory_bytes = std::uint64_t{64} << 20,
                                     .host_memory_bytes = std::uint64_t{64} << 20,
                                     .threads = 1,
                                     .policy = policy,
                                     .training = network.training});
  }

  const std::filesystem::path checkpoint;
  const std::filesystem::path saved;  // where failing runs save
  const PlannedRun run;
  TrainingState state;
  std::string usual;
};

// The distance between points that fail: `usual`, seven times that under sanitizers, and 1 in a long run.
inline std::uint64_t fault_stride(std::uint64_t usual) noexcept {
  return extent({.usual = usual, .under_sanitizers = 7 * usual, .in_long_run = 1});
}

// Calls fail_at(n) for every `stride`-th point; fail_at() returns the number of points. Prints and returns
// how many points failed.
template <class FailAt>
std::uint64_t fail_points(const char* what, std::uint64_t stride, const FailAt& fail_at) {
  std::uint64_t failed = 0;
  std::uint64_t points = 0;
  for (std::uint64_t point = 1;; point += stride) {
    SCOPED_TRACE(std::string(what) + " " + std::to_string(point));
    points = fail_at(point);
    if (points < point || ::testing::Test::HasFailure()) {
      break;
    }
    ++failed;
  }
  std::cout << failed << " " << what << "s failed, one at a time, of " << std::max(failed, points) << "\n";
  return failed;
}

// Runs `body` and returns the text of its error, or an empty string. An error of an undocumented type fails
// the test.
template <class Body>
std::string typed_error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::bad_alloc& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "an error of an undocumented type: " << error.what();
    return error.what();
  }
  return "";
}

}  // namespace vdnn::testing
