// Calls of the device fail once. A session is created, loaded from a checkpoint, trained for one step and
// saved. In this life, every second reservation, commit, page-lock, stream, wait, launch and copy is refused
// in turn; in a long run, every one is. Launches and copies also fail late. The session reports each failure
// with a typed error, nothing leaks, and nothing hangs. The failed session goes on from a restored state, and
// a fresh session from the checkpoint, with the usual bits.

#include <gtest/gtest.h>

#include <optional>

#include "tests/fakes/failing_device.h"
#include "tests/faults/fault_case.h"
#include "tests/temporary_directory.h"

namespace vdnn::testing {
namespace {

class FailingCalls : public TemporaryDirectory, public ::testing::WithParamInterface<FaultParameter> {
 protected:
  // The whole life of a session in which the call `fail_at` fails. Returns the number of calls.
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
        << "a failure was not reported, or an error had no failure: " << error;
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
