#include "streams/mapping.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "tests/streams/memory_policy.h"

namespace vdnn {
namespace {

constexpr std::uint64_t kPages = 5;

Mapping make(Mapping::Kind kind) {
  return Mapping::make(kPages * kPageBytes, kPageBytes, kind).value();
}

// How many pages of it are there.
std::ptrdiff_t resident(const Mapping& mapping) {
  std::vector<unsigned char> pages(kPages);
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
  // Up to the last byte of the fourth page.
  touch_pages({.begin = mapping.range().begin, .bytes = 3 * kPageBytes + 1});
  EXPECT_EQ(resident(mapping), 4);
  EXPECT_EQ(*pointer_to<std::uint8_t>(second), 7);
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
