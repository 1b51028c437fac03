// Every allocation of our own objects fails once: in a whole step and a whole checkpoint, the n-th allocation
// of the process, whichever thread makes it, throws std::bad_alloc, for every n. The failure is told, nothing
// leaks, nothing hangs; the session goes on from a restored state, and a fresh one from the checkpoint, with
// the usual bits.

#include <gtest/gtest.h>

#include "fakes/heap.h"
#include "tests/faults/fault_case.h"
#include "tests/temporary_directory.h"

namespace vdnn::testing {
namespace {

class FailingHeap : public TemporaryDirectory, public ::testing::WithParamInterface<FaultParameter> {
 protected:
  // A step and a checkpoint in which the allocation `fail_at` fails; how many allocations there were.
  static std::uint64_t step_and_save(const FaultCase& of, std::uint64_t fail_at) {
    Session session(of.run);
    session.restore(of.state);
    const std::vector<std::vector<std::byte>> inputs = random_inputs(*of.run.tape, of.state.step);
    const std::vector<Session::Bytes> spans(inputs.begin(), inputs.end());
    std::uint64_t allocations = 0;
    const std::string error = typed_error_of([&] {
      const HeapFailure failure(fail_at);
      const auto count = [&] { allocations = failure.allocations(); };
      try {
        session.step(spans, 0.01F);
        save_checkpoint(of.saved, session);
      } catch (...) {
        count();
        throw;
      }
      count();
    });
    EXPECT_EQ(error.empty(), allocations < fail_at)
        << "the failure was told to nobody, or there was none: " << error;
    of.expect_mended(session);
    return allocations;
  }
};

TEST_P(FailingHeap, EachAllocationFailsOnceAndTheNextRunHasTheUsualBits) {
  const FaultCase of(GetParam(), directory_);
  of.expect_the_usual_bits();
  const std::uint64_t failed = fail_points("allocation", [&](std::uint64_t fail_at) {
    // With no session alive: the queues of their threads are of one size now and of another then.
    const std::uint64_t blocks = heap_blocks();
    const std::uint64_t allocations = step_and_save(of, fail_at);
    EXPECT_EQ(heap_blocks(), blocks) << "something was not given back";
    of.expect_the_usual_bits();
    return allocations;
  });
  EXPECT_GE(failed, 100U / kFaultStride);
}

INSTANTIATE_TEST_SUITE_P(Networks, FailingHeap, fault_parameters(), name_of_fault_parameter);

}  // namespace
}  // namespace vdnn::testing
