#include "tests/crash/command.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace vdnn::testing {
namespace {

// Regression: after ctest killed a test at its time limit, programs that the test had started ran on.
TEST(Command, EndsWithATestThatIsKilled) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const pid_t test = ::fork();
  if (test == 0) {
    const Command command({"/bin/sleep", "60"}, "/dev/null");
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(test, &status, 0), test);
  // The orphaned sleep ends with status 0 unless it was killed or did not start.
  ASSERT_GT(::waitpid(-1, &status, 0), 0);
  EXPECT_NE(status, 0);
}

}  // namespace
}  // namespace vdnn::testing
