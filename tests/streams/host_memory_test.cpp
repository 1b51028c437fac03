#include "streams/host_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "tests/temporary_directory.h"

namespace vdnn {
namespace {

class HostMemory : public testing::TemporaryDirectory {
 protected:
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((directory_ / path).parent_path());
    TemporaryDirectory::write(path, text + "\n");
  }
  std::optional<std::uint64_t> limit() const { return cgroup_memory_limit(directory_); }
};

TEST_F(HostMemory, WithoutGroupsThereIsNoLimit) {
  EXPECT_EQ(limit(), std::nullopt);
  write("proc/self/cgroup", "0::/user.slice");
  EXPECT_EQ(limit(), std::nullopt);
  write("sys/fs/cgroup/user.slice/memory.max", "max");
  EXPECT_EQ(limit(), std::nullopt);
}

TEST_F(HostMemory, TheLeastLimitOfTheGroupAndThoseAroundItCounts) {
  write("proc/self/cgroup", "0::/pods/one/app");
  write("sys/fs/cgroup/pods/one/app/memory.max", "8000000000");
  write("sys/fs/cgroup/pods/one/memory.max", "max");
  write("sys/fs/cgroup/pods/two/memory.max", "1");
  EXPECT_EQ(limit(), 8'000'000'000U);
  write("sys/fs/cgroup/pods/memory.max", "6000000000");
  EXPECT_EQ(limit(), 6'000'000'000U);
  write("sys/fs/cgroup/memory.max", "5000000000");
  EXPECT_EQ(limit(), 5'000'000'000U);
}

// A container sees its control group as the outermost one, but under the name that the group has on the host.
TEST_F(HostMemory, AGroupThatIsSeenAsTheOutermostIsFound) {
  write("proc/self/cgroup", "0::/docker/7f3a");
  write("sys/fs/cgroup/memory.max", "4096000");
  EXPECT_EQ(limit(), 4'096'000U);
}

TEST_F(HostMemory, OfVersionOneTheHierarchyOfTheMemoryControllerCounts) {
  write("proc/self/cgroup",
        "5:cpu,cpuacct:/docker/x\n4:hugetlb,memory:/docker/7f3a\n1:name=systemd:/docker/x");
  write("sys/fs/cgroup/cpu/docker/x/memory.limit_in_bytes", "1");
  write("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "2");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(limit(), 9'223'372'036'854'771'712U) << "more than any machine has";
  write("sys/fs/cgroup/memory/docker/7f3a/memory.limit_in_bytes", "12345678");
  EXPECT_EQ(limit(), 12'345'678U);
}

TEST_F(HostMemory, WhereBothVersionsAreMountedTheLesserCounts) {
  write("proc/self/cgroup", "4:memory:/a\n0::/b");
  write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "3000");
  write("sys/fs/cgroup/unified/b/memory.max", "2000");
  EXPECT_EQ(limit(), 2000U);
}

TEST_F(HostMemory, WhatIsNoListOfGroupsIsNoLimit) {
  write("proc/self/cgroup", "\nmemory\n4:memory\n::");
  write("sys/fs/cgroup/memory.max", "");
  EXPECT_EQ(limit(), std::nullopt);
}

TEST_F(HostMemory, OfThisMachineThereIsSomeAndNoMoreThanItsLimit) {
  EXPECT_GT(host_memory_bytes(), 0U);
  EXPECT_LE(host_memory_bytes(), cgroup_memory_limit().value_or(host_memory_bytes()));
}

}  // namespace
}  // namespace vdnn
