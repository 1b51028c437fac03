#pragma once
// Threads of the test as the ranks of one training. Each has its process group, with messages in memory.

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/dist/process_group.h"
#include "tests/fakes/fake_network.h"

namespace vdnn::testing {

// Runs work(group) on every rank until all have returned. Returns what each threw, or "". If a rank throws,
// the time that other ranks would wait for it passes at once.
inline std::vector<std::string> outcomes_of_ranks(int ranks, const std::function<void(ProcessGroup&)>& work) {
  constexpr double kLongerThanAnyWait = 1e6;  // seconds of the network's own time
  FakeNetwork network({.ranks = ranks});
  return network.run([&](int rank) {
    try {
      const std::unique_ptr<ProcessGroup> group = make_process_group(network.transport(rank), {});
      work(*group);
    } catch (...) {
      network.let_pass(kLongerThanAnyWait);
      throw;
    }
  });
}

// Like outcomes_of_ranks(), for ranks that must not throw.
inline void run_ranks(int ranks, const std::function<void(ProcessGroup&)>& work) {
  for (const std::string& what : outcomes_of_ranks(ranks, work)) {
    EXPECT_EQ(what, "");
  }
}

}  // namespace vdnn::testing
