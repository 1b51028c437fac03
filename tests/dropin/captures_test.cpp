#include "allocator/dropin/preload/captures.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "vdnn/address_range.h"

namespace vdnn::preload {
namespace {

const NamedStream kStream{.handle = pointer_to<CUstream_st>(0x1000), .ordinal = 0};

bool always(const NamedStream& /*stream*/) {
  return true;
}

TEST(Captures, OneCountsFromBeforeItBeginsToItsEnd) {
  Captures captures;
  EXPECT_FALSE(captures.any(always));
  const std::uint64_t refused = captures.begin(kStream);
  EXPECT_TRUE(captures.any([](const NamedStream&) { return false; })) << "the capture may have begun";
  captures.has_begun(refused, false);
  EXPECT_FALSE(captures.any(always));
  captures.has_begun(captures.begin(kStream), true);
  EXPECT_TRUE(captures.any(always));
  captures.end(kStream, captures.last());
  EXPECT_FALSE(captures.any(always));
}

TEST(Captures, OneThatEndedUnseenCountsNoLonger) {
  Captures captures;
  captures.has_begun(captures.begin(kStream), true);
  EXPECT_FALSE(captures.any([](const NamedStream&) { return false; }));
  EXPECT_FALSE(captures.any(always));
}

// While one thread destroys a stream, another thread may get the same handle for a new stream, and capture
// the new stream. Regression: the new stream's capture was forgotten with the old stream.
TEST(Captures, AnotherStreamOfTheSameHandleKeepsItsOwn) {
  Captures captures;
  captures.has_begun(captures.begin(kStream), true);
  const std::uint64_t before = captures.last();
  captures.has_begun(captures.begin(kStream), true);
  captures.end(kStream, before);
  EXPECT_TRUE(captures.any(always));
  captures.end(kStream, captures.last());
  EXPECT_FALSE(captures.any(always));
}

TEST(Captures, AResetTakesThoseOfItsGpu) {
  Captures captures;
  const NamedStream other{.handle = pointer_to<CUstream_st>(0x2000), .ordinal = 1};
  captures.has_begun(captures.begin(kStream), true);
  captures.has_begun(captures.begin(other), true);
  ASSERT_TRUE(captures.take(1));
  EXPECT_FALSE(captures.take(1));
  EXPECT_TRUE(captures.any(always));
  EXPECT_TRUE(captures.take(0));
  EXPECT_FALSE(captures.any(always));
}

}  // namespace
}  // namespace vdnn::preload
