// Calls of the device fail once: every second reservation, commit, page-lock, stream, wait, launch and copy
// of a session's whole life (made, loaded from a checkpoint, one step, saved), in a long run each, is refused
// in turn, and launches and copies fail late besides. The failure is told, typed; nothing leaks, nothing
// hangs; the session that failed goes on from a restored state, and a fresh one from the checkpoint, with the
// usual bits.

#include <gtest/gtest.h>

#include <optional>

#include "tests/fakes/failing_device.h"
#include "tests/faults/fault_case.h"
#include "tests/temporary_directory.h"

namespace vdnn::testing {
namespace {

class FailingCalls : public TemporaryDirectory, public ::testing::WithParamInterface<FaultParameter> {
 protected:
  // The whole life of a session in which the call `fail_at` fails; how many calls there were.
  static std::uint64_t live(const FaultCase& of, std::uint64_t fail_at) {
    DeviceFaults faults;
    faults.fail_at = fail_at;
    faults.armed = true;
    SessionOptions options;
    options.wrap_device = [&](std::unique_ptr<Device> cpu) {
      return std::make_unique<FailingDevice>(std::move(cpu), faults);
    };
    std::optional<Session> session;
    const std::string error = typed_error_of([&] {
      session.emplace(of.run, options);
      load_checkpoint(of.checkpoint, *session);
      one_step(*session);
      save_checkpoint(of.saved, *session);
      session->finish();
    });
    faults.armed = false;
    SCOPED_TRACE(faults.failed);
    EXPECT_EQ(error.empty(), faults.failed.empty())
        << "the failure was told to nobody, or there was none: " << error;
    if (session) {
      of.expect_mended(*session);
      session.reset();
    }
    EXPECT_EQ(faults.leaked_device_bytes, 0U);
    EXPECT_EQ(faults.leaked_pinned_bytes, 0U);
    EXPECT_EQ(faults.leaked_reservations, 0U);
    of.expect_the_usual_bits();
    return faults.points;
  }
};

TEST_P(FailingCalls, EachFailsOnceAndTheNextRunHasTheUsualBits) {
  const FaultCase of(GetParam(), directory_);
  const std::uint64_t stride = fault_stride(2);
  const std::uint64_t failed =
      fail_points("call", stride, [&](std::uint64_t fail_at) { return live(of, fail_at); });
  EXPECT_GE(failed, 100U / stride);
}

INSTANTIATE_TEST_SUITE_P(Networks, FailingCalls, fault_parameters(), name_of_fault_parameter);

}  // namespace
}  // namespace vdnn::testing
