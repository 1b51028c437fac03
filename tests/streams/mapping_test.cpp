#include "streams/mapping.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "streams/pinned_blocks.h"
#include "tests/streams/memory_policy.h"

namespace vdnn {
namespace {

constexpr std::uint64_t kPages = 5;

Mapping make(Mapping::Kind kind) {
  return Mapping::make(kPages * kPageBytes, kPageBytes, kind).value();
}

// The kernel's value for `field` of the mapping at `address` (proc(5), smaps), with a space at either end.
std::string kernel_value(std::uint64_t address, const std::string& field) {
  std::ifstream file("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      inside = begin <= address && address < end;
    } else if (inside && line.starts_with(field + ":")) {
      return line.substr(field.size() + 1) + " ";
    }
  }
  return "";
}

bool has_flag(std::uint64_t address, const std::string& flag) {
  return kernel_value(address, "VmFlags").find(" " + flag + " ") != std::string::npos;
}

// The bytes in the process's own pages, without the shared zero page.
std::uint64_t written_bytes(std::uint64_t address) {
  return std::stoull(kernel_value(address, "Anonymous")) * 1024;
}

// The number of the mapping's pages that are in memory.
std::ptrdiff_t resident(const Mapping& mapping) {
  std::vector<unsigned char> pages(mapping.range().bytes / kPageBytes);
  EXPECT_EQ(mincore(pointer_to<void>(mapping.range().begin), mapping.range().bytes, pages.data()), 0);
  return std::ranges::count_if(pages, [](unsigned char page) { return (page & 1U) != 0; });
}

TEST(MappingTest, PagesAreThereWhereTheKindSaysSo) {
  EXPECT_EQ(resident(make(Mapping::Kind::kReserved)), 0);
  EXPECT_EQ(resident(make(Mapping::Kind::kUntouched)), 0);
  EXPECT_EQ(resident(make(Mapping::Kind::kTouched)), kPages);
}

TEST(MappingTest, TouchingBringsEveryPageAndKeepsWhatItHolds) {
  const Mapping mapping = make(Mapping::Kind::kUntouched);
  const std::uint64_t second = mapping.range().begin + kPageBytes;
  *pointer_to<std::uint8_t>(second) = 7;
  EXPECT_EQ(resident(mapping), 1);
  // The range ends with the first byte of the fourth page.
  touch_pages({.begin = mapping.range().begin, .bytes = 3 * kPageBytes + 1});
  EXPECT_EQ(resident(mapping), 4);
  EXPECT_EQ(*pointer_to<std::uint8_t>(second), 7);
}

// The minor page faults of the calling thread.
std::int64_t page_faults() {
  rusage usage{};
  EXPECT_EQ(getrusage(RUSAGE_THREAD, &usage), 0);
  return usage.ru_minflt;
}

// Regression: the thread read a page before writing it, which causes two faults.
TEST(MappingTest, TouchingIsAFaultForEachPage) {
  constexpr std::int64_t kMany = 256;
  const Mapping mapping = Mapping::make(kMany * kPageBytes, kPageBytes, Mapping::Kind::kUntouched).value();
  madvise(pointer_to<void>(mapping.range().begin), mapping.range().bytes, MADV_NOHUGEPAGE);
  const std::int64_t before = page_faults();
  touch_pages(mapping.range(), 1);
  EXPECT_LE(page_faults() - before, kMany + kMany / 8);
}

TEST(MappingTest, SeveralThreadsTouchEveryPageAndNothingElse) {
  constexpr std::uint64_t kBytes = 5 * kHugePageBytes;
  for (const unsigned threads : {1U, 2U, 3U, 100U}) {
    const Mapping mapping = Mapping::make(kBytes, kPageBytes, Mapping::Kind::kUntouched).value();
    madvise(pointer_to<void>(mapping.range().begin), kBytes, MADV_NOHUGEPAGE);
    const AddressRange inner{.begin = mapping.range().begin + kPageBytes, .bytes = kBytes - 2 * kPageBytes};
    *pointer_to<std::uint8_t>(inner.begin + 5) = 9;
    touch_pages(inner, threads);
    EXPECT_EQ(resident(mapping), static_cast<std::ptrdiff_t>(kBytes / kPageBytes) - 2) << threads;
    EXPECT_GE(written_bytes(inner.begin), inner.bytes);
    EXPECT_EQ(*pointer_to<std::uint8_t>(inner.begin + 5), 9);
  }
}

TEST(MappingTest, MoreMemoryIsTouchedByMoreThreads) {
  EXPECT_EQ(touching_threads(1, 64), 1U);
  EXPECT_GT(touching_threads(std::uint64_t{1} << 30, 64), 1U);
  EXPECT_LE(touching_threads(std::uint64_t{1} << 40, 64), 64U);
  EXPECT_EQ(touching_threads(std::uint64_t{1} << 40, 0), 1U)
      << "the system does not report its number of processors";
}

// Regression: mappings had only pages of 4 KiB, and blocks were not aligned to huge pages.
TEST(MappingTest, BlocksLieOnHugePagesWhereThereAreAny) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage/enabled")) {
    GTEST_SKIP() << "the system has no transparent huge pages";
  }
  PinnedBlocks blocks("test", 0, Mapping::Kind::kUntouched);
  const AddressRange block = blocks.take(3 * kHugePageBytes + 5);
  EXPECT_EQ(block.begin % kHugePageBytes, 0U);
  prefer_huge_pages(block);
  EXPECT_TRUE(has_flag(block.begin, "hg"));
  EXPECT_FALSE(has_flag(block.begin + 3 * kHugePageBytes, "hg")) << "no memory beyond the request";
  prefer_huge_pages({.begin = block.begin + 1, .bytes = kPageBytes});  // no huge page fits into the range
}

TEST(MappingTest, PagesComeFromTheNodeThatIsPreferred) {
  const Mapping mapping = make(Mapping::Kind::kUntouched);
  const AddressRange range = mapping.range();
  prefer_node(range, -1);
  prefer_node(range, 1 << 20);
  if (!may_prefer_nodes()) {
    GTEST_SKIP() << "the system does not permit it";
  }
  EXPECT_EQ(memory_policy(range.begin)->mode, MPOL_DEFAULT);
  prefer_node(range, 0);
  for (const std::uint64_t page : {range.begin, range.end() - kPageBytes}) {
    EXPECT_EQ(memory_policy(page)->mode, MPOL_PREFERRED);
    EXPECT_EQ(memory_policy(page)->nodes, 1U);
  }
  touch_pages(range);
  EXPECT_EQ(resident(mapping), kPages);
}

}  // namespace
}  // namespace vdnn
