// Allocations of our own objects fail. A session is created, loaded from a checkpoint, trained for one step
// and saved. In this life, the n-th allocation of the process throws std::bad_alloc, whichever thread makes
// it. In another life, all later allocations throw, too. A long run tries every n for the first and every
// eighth for the second; other runs try fewer (fault_stride()). Either the session reports the failure, or
// the failure did no harm; nothing leaks, and nothing hangs. The session goes on from a restored state, and a
// fresh session from the checkpoint, with the usual bits.

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
  // The life of a session in which the allocation `fail_at` fails. Returns the number of allocations.
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
    // Without an error, the result must be the usual one: std::stable_sort, for example, requests memory that
    // it can do without.
    if (error.empty()) {
      EXPECT_EQ(session->weights_sha256(), of.usual) << "a failure was not reported and did harm";
    }
    EXPECT_TRUE(error.empty() || allocations >= fail_at) << "an error without a failure: " << error;
    if (session) {
      of.expect_mended(*session);
    }
    return allocations;
  }

  static void fail_each(const FaultCase& of, HeapFailure::Kind kind, std::uint64_t stride) {
    of.expect_the_usual_bits();
    const auto fail_at = [&](std::uint64_t point) {
      // Blocks are counted while no session is alive, since the sizes of the sessions' queues vary.
      const std::uint64_t blocks = heap_blocks();
      const std::uint64_t allocations = live(of, point, kind);
      EXPECT_EQ(heap_blocks(), blocks) << "a block has leaked";
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
  // An eighth of the points suffices. Since later allocations also fail, each try ends soon.
  fail_each(FaultCase(GetParam(), directory_), HeapFailure::Kind::kFromThenOn, 8 * fault_stride(74));
}

INSTANTIATE_TEST_SUITE_P(Networks, FailingHeap, fault_parameters(), name_of_fault_parameter);

}  // namespace
}  // namespace vdnn::testing
