// Every allocation of our own objects fails once: in a whole step and a whole checkpoint, the n-th allocation
// of the process, whichever thread makes it, throws std::bad_alloc, for every n. The failure is told, nothing
// leaks, nothing hangs; the session goes on from a restored state, and a fresh one from the checkpoint, with
// the usual bits.

#include <gtest/gtest.h>

#include <memory>

#include "fakes/heap.h"
#include "tests/faults/fault_case.h"
#include "tests/temporary_directory.h"

namespace vdnn::testing {
namespace {

class FailingHeap : public TemporaryDirectory, public ::testing::WithParamInterface<FaultParameter> {
 protected:
  // A step and a checkpoint in which the allocation `fail_at` fails; how many allocations there were.
  static std::uint64_t step_and_save(const FaultCase& of, Session& session, std::uint64_t fail_at) {
    session.finish();
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
  auto session = std::make_unique<Session>(of.run);
  of.expect_mended(*session);
  std::uint64_t blocks = 0;
  const std::uint64_t failed = fail_points("allocation", [&](std::uint64_t fail_at) {
    const std::uint64_t allocations = step_and_save(of, *session, fail_at);
    of.expect_the_usual_bits();
    if (fail_at > 1) {
      EXPECT_EQ(heap_blocks(), blocks) << "something was not given back";
    }
    blocks = heap_blocks();
    return allocations;
  });
  EXPECT_GT(failed, 100U / kFaultStride);
}

INSTANTIATE_TEST_SUITE_P(Networks, FailingHeap, fault_parameters(), name_of_fault_parameter);

}  // namespace
}  // namespace vdnn::testing
