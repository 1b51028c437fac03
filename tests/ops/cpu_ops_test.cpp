// The library around the kernels: threads, refusals of compile(), parameters.

#include "vdnn/cpu_ops.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <future>
#include <iterator>

#include "tests/ops/layer_cases.h"
#include "tests/ops/loss_cases.h"
#include "vdnn/error.h"
#include "vdnn/network.h"
#include "vdnn/plan.h"
#include "vdnn/zoo.h"

namespace vdnn::testing {
namespace {

LayerCase small_convolution() {
  return convolution_case("conv", {4, 8, 16, 16}, {16, {3, 3}, {1, 1}, {1, 1}});
}

void set_all(OpHarness& op) {
  const LayerCase layer = small_convolution();
  op.set(kX, random_array(layer.inputs[0].dims, 81));
  op.set(kDY, random_array(layer.output.dims, 82));
  op.set(kFilter, random_array({16, 8, 3, 3}, 83));
  op.set(kBias, random_array({16}, 84));
}

// Runs on a fresh thread and rethrows its exception here.
void on_another_thread(const std::function<void()>& work) {
  std::async(std::launch::async, work).get();
}

std::ptrdiff_t threads_of_this_process() {
  namespace fs = std::filesystem;
  return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
}

TEST(CpuOps, RefusesNoThreads) {
  EXPECT_THROW(make_cpu_ops({.threads = 0}), InvalidArgument);
  EXPECT_THROW(make_cpu_ops({.threads = -1}), InvalidArgument);
}

// The number of OpenMP threads is a setting of the calling thread, which the library must restore.
TEST(CpuOps, LeavesTheCallersThreadCountAlone) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(3);
  const auto library = make_cpu_ops({.threads = 2});
  OpHarness op(*library, small_convolution());
  set_all(op);
  for (OpId id = 0; id < op.recipes().size(); ++id) {
    op.run(id);
  }
  EXPECT_EQ(omp_get_max_threads(), 3);
  omp_set_num_threads(before);
}

TEST(CpuOps, OneThreadStartsNoTeam) {
  const auto library = make_cpu_ops({.threads = 1});
  // Large enough to be worth a team of threads.
  const PoolingSpec pooling{PoolingMode::kMax, {2, 2}, {2, 2}, {0, 0}};
  const std::vector<LayerCase> layers{small_convolution(),
                                      pooling_case("pool", {8, 64, 32, 32}, pooling),
                                      relu_case({64, 64, 16}),
                                      class_loss_case(SoftmaxCrossEntropySpec{}, {2, 3, 100, 100}),
                                      class_loss_case(DiceCrossEntropySpec{}, {2, 3, 100, 100}),
                                      regression_case(MeanSquaredErrorSpec{}, {64, 64, 16})};
  // A fresh thread has no team yet. Without intervention, OpenMP would give it a team of three.
  on_another_thread([&] {
    omp_set_num_threads(3);
    const std::ptrdiff_t before = threads_of_this_process();
    for (const LayerCase& layer : layers) {
      OpHarness op(*library, layer);
      for (OpId id = 0; id < op.recipes().size(); ++id) {
        for (std::uint32_t i = 0; i < op.recipe(id).algorithms.size(); ++i) {
          op.run(id, {.algorithm = i, .in_place = {}});
          EXPECT_EQ(threads_of_this_process(), before)
              << layer.name << " op " << id << " " << op.recipe(id).algorithms[i].name;
        }
      }
    }
  });
}

// One thread compiles a program. A stream's worker runs it, with a different OpenMP setting.
TEST(CpuOps, ResultsDoNotDependOnTheExecutingThread) {
  for (const int threads : {1, 2}) {
    const auto library = make_cpu_ops({.threads = threads});
    OpHarness here(*library, small_convolution());
    OpHarness there(*library, small_convolution());
    set_all(here);
    set_all(there);
    for (OpId id = 0; id < here.recipes().size(); ++id) {
      for (std::uint32_t i = 0; i < here.recipe(id).algorithms.size(); ++i) {
        SCOPED_TRACE(here.recipe(id).algorithms[i].name);
        here.run(id, {.algorithm = i, .in_place = {}});
        on_another_thread([&] {
          omp_set_num_threads(5);
          there.run(id, {.algorithm = i, .in_place = {}});
        });
        for (const Operand& written : here.recipe(id).writes) {
          EXPECT_TRUE(std::ranges::equal(here.buffer(written).as<std::byte>(),
                                         there.buffer(written).as<std::byte>()));
        }
      }
    }
  }
}

TEST(CpuOps, CompileRefusesAlgorithmsThatAreNotThere) {
  const auto library = make_cpu_ops({});
  const OpHarness op(*library, small_convolution());
  EXPECT_THROW(library->compile(op.tape(), std::vector<std::uint32_t>{0, 0}), InvalidArgument);
  EXPECT_THROW(library->compile(op.tape(), std::vector<std::uint32_t>{0, 0, 99}), InvalidArgument);
}

// The order of oneDNN's iterator depends on its cache of primitives. Regression: a kernel of the third
// implementation was made, and then one of the first. After that, the iterator listed the third
// implementation before the second. So compile() refused an older tape as made for another library.
TEST(CpuOps, AlgorithmsDoNotDependOnWhichHaveBeenCompiled) {
  const auto library = make_cpu_ops({});
  const Network network = make_model({.model = "lenet", .batch = 2});
  const auto tape = lower_to_tape(network, library->catalog(), {});
  for (const auto preference : {AlgorithmPreference::kMemory, AlgorithmPreference::kPerformance}) {
    library->compile(*tape, make_plan(*tape, {.preference = preference}).algorithms);
  }
  const auto again = lower_to_tape(network, library->catalog(), {});
  std::vector<std::uint32_t> last;
  for (OpId id = 0; id < tape->ops().size(); ++id) {
    const Op& op = tape->op(id);
    const std::vector<Algorithm>& others = again->op(id).algorithms;
    EXPECT_TRUE(std::ranges::equal(op.algorithms, others, {}, &Algorithm::name, &Algorithm::name)) << op.name;
    last.push_back(static_cast<std::uint32_t>(op.algorithms.size() - 1));
  }
  EXPECT_NO_THROW(library->compile(*tape, last));
}

// Tapes may come from a file, another machine or another thread count. compile() must not run a kernel under
// the name of another one, or with less workspace than the kernel needs.
TEST(CpuOps, CompileRefusesATapeThatAnotherLibraryMade) {
  const auto library = make_cpu_ops({});
  const OpHarness op(*library, small_convolution());
  const auto compile_with = [&](const std::function<void(Algorithm&)>& change) {
    Tape::Parts parts{.model = op.tape().model(),
                      .values = {op.tape().values().begin(), op.tape().values().end()},
                      .ops = {op.tape().ops().begin(), op.tape().ops().end()},
                      .layers = {op.tape().layers().begin(), op.tape().layers().end()},
                      .parameters = {op.tape().parameters().begin(), op.tape().parameters().end()},
                      .inputs = {op.tape().inputs().begin(), op.tape().inputs().end()}};
    change(parts.ops[0].algorithms[0]);
    const Tape tape(std::move(parts));
    library->compile(tape, std::vector<std::uint32_t>(tape.ops().size(), 0));
  };
  EXPECT_NO_THROW(compile_with([](Algorithm&) {}));
  EXPECT_THROW(compile_with([](Algorithm& algorithm) { algorithm.name = "other"; }), InvalidArgument);
  EXPECT_THROW(compile_with([](Algorithm& algorithm) { algorithm.workspace_bytes += 64; }), InvalidArgument);
}

TEST(CpuOps, PackingRefusesWhatIsNoParameter) {
  const auto library = make_cpu_ops({});
  OpHarness op(*library, small_convolution());
  std::vector<float> wrong_size(7);
  std::vector<float> bias(16);
  EXPECT_THROW(op.program().pack_parameter(0, wrong_size, op.buffer(kFilter).data()), InvalidArgument);
  EXPECT_THROW(op.program().unpack_parameter(2, op.buffer(kBias).data(), bias), InvalidArgument);
}

// Checkpoints and hashes see filters as KRSC, in whatever layout they are stored.
TEST(CpuOps, LogicalOrderOfFiltersIsKrsc) {
  const auto library = make_cpu_ops({});
  OpHarness op(*library, convolution_case("conv", {1, 2, 4, 4}, {3, {1, 2}, {1, 1}, {0, 0}}));
  // Filter k returns channel c at column s of its window times w[k][r][s][c].
  std::vector<float> logical(12);
  for (std::size_t i = 0; i < logical.size(); ++i) {
    logical[i] = static_cast<float>(i + 1);
  }
  op.program().pack_parameter(0, logical, op.buffer(kFilter).data());
  op.set(kBias, reference::Array({3}));
  reference::Array x({1, 2, 4, 4});
  x.data[16] = 1;  // channel 1, row 0, column 0
  op.set(kX, x);
  op.run(0);
  const reference::Array y = op.get(kY);
  for (std::size_t k = 0; k < 3; ++k) {
    const std::size_t krsc = (k * 2 + 0) * 2 + 1;  // s = 0, c = 1
    EXPECT_EQ(y.data[k * 12], static_cast<double>(logical[krsc]));
  }
}

}  // namespace
}  // namespace vdnn::testing
