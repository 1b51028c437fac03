// Graphs with several backward passes: retain_graph, double backward. Tensors are away again between two
// passes, which plans take into account. All tests compare contents.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/stash/released_tensors.h"
#include "vdnn/tensor_stash.h"

namespace vdnn::retained_graphs_test {
namespace {

constexpr std::uint64_t kBytes = 1024;
constexpr std::size_t kTensors = 12;
constexpr std::size_t kMost = 64;  // handles per call

struct Graph {
  std::size_t passes = 2;
  std::size_t tensors_of_node = 1;
  bool tells_bytes = true;
};

// A chain of layers, each of which saves one tensor. A node of the graph reads its tensors one after the
// other, holds them while it works, and then releases them.
class Program {
 public:
  Program(const Graph& graph, std::uint64_t budget_bytes)
      : graph_(graph), stash_(make_host_stash_backend(), {.budget_bytes = budget_bytes}) {}

  struct Step {
    std::uint64_t peak_bytes = 0;  // of the program's tensors
    std::uint64_t out_bytes = 0;
    std::uint64_t in_bytes = 0;
    std::uint64_t late = 0;
  };
  Step step() {
    const StashStatistics before = stash_.statistics();
    peak_bytes_ = 0;
    for (std::size_t i = 0; i < kTensors; ++i) {
      save(i);
    }
    for (std::size_t pass = 1; pass <= graph_.passes; ++pass) {
      for (std::size_t end = kTensors; end > 0; end -= graph_.tensors_of_node) {
        run_node(end, pass == graph_.passes);
      }
    }
    tensors_.clear();
    const StashStatistics after = stash_.statistics();
    return {.peak_bytes = peak_bytes_,
            .out_bytes = after.out_bytes - before.out_bytes,
            .in_bytes = after.in_bytes - before.in_bytes,
            .late = after.fetched_late - before.fetched_late};
  }
  StashStatistics statistics() const { return stash_.statistics(); }
  std::string take_notice() { return stash_.take_notice(512); }

 private:
  using Bytes = std::vector<unsigned char>;
  struct Tensor {
    StashHandle handle = 0;
    Bytes memory;  // the source or a target; empty while the tensor is away
    unsigned char value = 0;
    bool is_target = false;
  };

  void take(Tensor& tensor) {
    tensor.memory.assign(kBytes, 0);
    in_use_bytes_ += kBytes;
    recent_peak_bytes_ = std::max(recent_peak_bytes_, in_use_bytes_);
    peak_bytes_ = std::max(peak_bytes_, in_use_bytes_);
  }
  void let_go(Tensor& tensor) {
    in_use_bytes_ -= tensor.memory.size();
    tensor.memory = {};
  }
  Tensor& find(StashHandle handle) {
    return *std::ranges::find(tensors_, handle, [](const Tensor& each) { return each.handle; });
  }
  std::uint64_t tell() {
    if (!graph_.tells_bytes) {
      return 0;
    }
    stash_.note_peak(std::exchange(recent_peak_bytes_, in_use_bytes_));
    return in_use_bytes_;
  }
  static std::uintptr_t address_of(Tensor& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.memory.data());
  }

  void save(std::size_t index) {
    Tensor& tensor = tensors_.emplace_back();
    take(tensor);
    tensor.value = static_cast<unsigned char>(++saves_ % 251);
    std::ranges::fill(tensor.memory, tensor.value);
    const PutAnswer answer = stash_.put({.source = {.begin = address_of(tensor), .bytes = kBytes},
                                         .contents = {.storage = saves_},
                                         .signature = index},
                                        tell());
    tensor.handle = answer.handle;
    for (const StashHandle each : testing::released_tensors(stash_, answer)) {
      let_go(find(each));
    }
  }

  void run_node(std::size_t end, bool is_last_pass) {
    std::vector<Bytes> held;
    for (std::size_t i = end; i-- > end - graph_.tensors_of_node;) {
      const bool is_last = read(tensors_[i]);
      if (is_last && tensors_[i].is_target) {
        held.push_back(std::exchange(tensors_[i].memory, {}));
      }
    }
    std::ranges::for_each(held, [this](const Bytes& each) { in_use_bytes_ -= each.size(); });
    for (std::size_t i = end; is_last_pass && i-- > end - graph_.tensors_of_node;) {
      stash_.drop(tensors_[i].handle);
      let_go(tensors_[i]);
    }
  }
  // Returns true if the reader is the last of its pass.
  bool read(Tensor& tensor) {
    const ReadAnswer answer = stash_.read(tensor.handle, nullptr, tell());
    if (answer.has_fetches) {
      for (const DueFetch& due : stash_.fetches(tensor.handle, kMost)) {
        Tensor& back = find(due.handle);
        EXPECT_TRUE(back.memory.empty());
        take(back);
        back.is_target = true;
        stash_.fetch(due.handle, address_of(back), nullptr);
      }
    }
    if (answer.place == StashPlace::kMissing) {
      stash_.ready(tensor.handle, nullptr);
    }
    EXPECT_EQ(std::ranges::count(tensor.memory, tensor.value), std::ssize(tensor.memory));
    EXPECT_EQ(tensor.memory.size(), kBytes);
    return answer.last;
  }

  const Graph graph_;
  TensorStash stash_;
  std::vector<Tensor> tensors_;  // of the current step
  std::uint64_t saves_ = 0;
  std::uint64_t in_use_bytes_ = 0;
  std::uint64_t recent_peak_bytes_ = 0;  // since the last report to the stash
  std::uint64_t peak_bytes_ = 0;         // of the current step
};

class RetainedGraphs : public ::testing::TestWithParam<Graph> {
 protected:
  // Runs several steps and returns the last one.
  static Program::Step settled_step(Program& program) {
    constexpr int kSteps = 6;
    for (int i = 1; i < kSteps; ++i) {
      program.step();
    }
    return program.step();
  }
};

class RetainedGraphsOfSmallNodes : public RetainedGraphs {};

std::string name_of(const ::testing::TestParamInfo<Graph>& test) {
  const Graph& graph = test.param;
  return std::to_string(graph.passes) + "Passes" + std::to_string(graph.tensors_of_node) + "TensorsOfNode" +
         (graph.tells_bytes ? "" : "Untold");
}

const auto kSmallNodes =
    ::testing::Values(Graph{.passes = 1}, Graph{}, Graph{.passes = 3}, Graph{.tensors_of_node = 2},
                      Graph{.tells_bytes = false}, Graph{.tensors_of_node = 2, .tells_bytes = false});
INSTANTIATE_TEST_SUITE_P(SmallNodes, RetainedGraphs, kSmallNodes, name_of);
INSTANTIATE_TEST_SUITE_P(LargeNodes, RetainedGraphs, ::testing::Values(Graph{.tensors_of_node = 3}), name_of);
INSTANTIATE_TEST_SUITE_P(All, RetainedGraphsOfSmallNodes, kSmallNodes, name_of);

// The budget must suffice for a node's tensors, one tensor fetched ahead and one on its way out.
TEST_P(RetainedGraphs, EachBudgetThatCanBeKeptIsKept) {
  for (std::uint64_t tensors = GetParam().tensors_of_node + 2; tensors <= kTensors; ++tensors) {
    SCOPED_TRACE(tensors);
    Program program(GetParam(), tensors * kBytes);
    const Program::Step step = settled_step(program);
    EXPECT_LE(step.peak_bytes, tensors * kBytes);
    EXPECT_LE(program.statistics().planned_peak_bytes, tensors * kBytes);
    EXPECT_EQ(program.take_notice(), "");
    EXPECT_LE(step.late, 1U);
    EXPECT_EQ(step.in_bytes, step.out_bytes * GetParam().passes);
  }
}

// In addition to the tensors for which the budget has no room, only a few leave: up to four for the windows,
// and as many as a node's other tensors, which stay on the device until the node is done. The test omits
// nodes with three tensors, since the reported bytes in use count one of these twice.
TEST_P(RetainedGraphsOfSmallNodes, NoMoreLeavesThanForTheFirstPassAlone) {
  for (std::uint64_t tensors = 1; tensors <= kTensors; ++tensors) {
    SCOPED_TRACE(tensors);
    Program program(GetParam(), tensors * kBytes);
    const std::uint64_t most = tensors == kTensors ? 0 : kTensors - tensors + 3 + GetParam().tensors_of_node;
    EXPECT_LE(settled_step(program).out_bytes, most * kBytes);
  }
}

TEST_P(RetainedGraphs, ABudgetThatCannotBeKeptIsTold) {
  Program program(GetParam(), kBytes);
  settled_step(program);
  EXPECT_NE(program.take_notice(), "");
}

}  // namespace
}  // namespace vdnn::retained_graphs_test
