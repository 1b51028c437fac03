// A ForkGuard distinguishes children of fork() from the parent, even if the system does not clear a page for
// them.

#include "src/stash/fork_guard.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace vdnn::stash::fork_guard_test {
namespace {

// Refuses to clear pages in children, as kernels older than 4.14 and sandboxes do.
int refuse(void* /*address*/, std::size_t /*bytes*/, int advice) {
  EXPECT_EQ(advice, MADV_WIPEONFORK);
  errno = EINVAL;
  return -1;
}

// True if a child's exit status reports that it recognises itself as a child.
bool is_found_in_child(const ForkGuard& guard) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(guard.is_in_child() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(ForkGuard, FindsChildren) {
  const ForkGuard guard;
  EXPECT_FALSE(guard.is_in_child());
  EXPECT_TRUE(is_found_in_child(guard));
  EXPECT_FALSE(guard.is_in_child());
}

TEST(ForkGuard, FindsChildrenWhereTheSystemClearsNoPage) {
  const ForkGuard guard(&refuse);
  EXPECT_FALSE(guard.is_in_child());
  EXPECT_TRUE(is_found_in_child(guard));
  EXPECT_FALSE(guard.is_in_child());
}

// A guard that a child makes belongs to the child, for example if a DataLoader's worker enables vdnn.torch.
TEST(ForkGuard, AChildMayMakeItsOwn) {
  const pid_t child = fork();
  if (child == 0) {
    const ForkGuard page;
    const ForkGuard number(&refuse);
    _exit(!page.is_in_child() && !number.is_in_child() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace vdnn::stash::fork_guard_test
