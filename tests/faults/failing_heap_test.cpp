// Every allocation of our own objects fails: in the whole life of a session (made, loaded from a checkpoint,
// one step, saved) the n-th allocation of the process, whichever thread makes it, throws std::bad_alloc, for
// every n; and, for every eighth, with all that follow it. The failure is told, or did no harm; nothing
// leaks, nothing hangs; the session goes on from a restored state, and a fresh one from the checkpoint, with
// the usual bits.

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "tests/fakes/heap.h"
#include "tests/faults/fault_case.h"
#include "tests/temporary_directory.h"

namespace vdnn::testing {
namespace {

class FailingHeap : public TemporaryDirectory, public ::testing::WithParamInterface<FaultParameter> {
 protected:
  // A life in which the allocation `fail_at` fails; how many allocations there were.
  static std::uint64_t live(const FaultCase& of, std::uint64_t fail_at, HeapFailure::Kind kind) {
    const std::vector<std::vector<std::byte>> inputs = random_inputs(*of.run.tape, of.state.step);
    const std::vector<Session::Bytes> spans(inputs.begin(), inputs.end());
    PlannedRun run = of.run;
    std::optional<Session> session;
    std::uint64_t allocations = 0;
    const std::string error = typed_error_of([&] {
      const HeapFailure failure(fail_at, kind);
      const auto count = [&] { allocations = failure.allocations(); };
      try {
        session.emplace(std::move(run));
        load_checkpoint(of.checkpoint, *session);
        session->step(spans, 0.01F);
        save_checkpoint(of.saved, *session);
      } catch (...) {
        count();
        throw;
      }
      count();
    });
    // The standard library asks for memory that it can do without (std::stable_sort).
    if (error.empty()) {
      EXPECT_EQ(session->weights_sha256(), of.usual) << "a failure that was told to nobody";
    }
    EXPECT_TRUE(error.empty() || allocations >= fail_at) << "nothing was made to fail: " << error;
    if (session) {
      of.expect_mended(*session);
    }
    return allocations;
  }

  static void fail_each(const FaultCase& of, HeapFailure::Kind kind, std::uint64_t stride) {
    of.expect_the_usual_bits();
    const auto fail_at = [&](std::uint64_t point) {
      // Counted with no session alive, since the sizes of the queues of their threads vary.
      const std::uint64_t blocks = heap_blocks();
      const std::uint64_t allocations = live(of, point, kind);
      EXPECT_EQ(heap_blocks(), blocks) << "something was not given back";
      of.expect_the_usual_bits();
      return allocations;
    };
    EXPECT_GE(fail_points("allocation", stride, fail_at), 1000U / stride);
  }
};

TEST_P(FailingHeap, EachAllocationFailsOnceAndTheNextRunHasTheUsualBits) {
  fail_each(FaultCase(GetParam(), directory_), HeapFailure::Kind::kOnce, fault_stride(74));
}

TEST_P(FailingHeap, NoAllocationSucceedsFromOneOnAndTheNextRunHasTheUsualBits) {
  // An eighth of the points: later allocations also fail, so that each try ends soon.
  fail_each(FaultCase(GetParam(), directory_), HeapFailure::Kind::kFromThenOn, 8 * fault_stride(74));
}

INSTANTIATE_TEST_SUITE_P(Networks, FailingHeap, fault_parameters(), name_of_fault_parameter);

}  // namespace
}  // namespace vdnn::testing
