#include "vdnn/allocation_log.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "vdnn/error.h"

namespace vdnn::allocation_log_test {
namespace {

constexpr const char* kTraining =
    "vdnn-allocation-log 1\n"
    "p 4096 0\n"
    "step\n"
    "a 100 0\n"
    "a 9223372036854775808 3\n"
    "u 1 4294967295\n"
    "f 1 0\n"
    "f 2 3\n";

std::string text_of(const AllocationLog& log) {
  std::ostringstream out;
  write_allocation_log(out, log);
  return out.str();
}

TEST(AllocationLog, IsWrittenAsItWasRead) {
  const AllocationLog log = read_allocation_log(kTraining);
  EXPECT_EQ(log.events.size(), 6U);
  EXPECT_EQ(log.step_begin, 1U);
  EXPECT_TRUE(log.events[0].lasting);
  EXPECT_FALSE(log.events[1].lasting);
  EXPECT_EQ(log.events[2], (AllocationEvent{.stream = 3, .block = 2, .bytes = 9223372036854775808ULL}));
  EXPECT_EQ(log.events[3],
            (AllocationEvent{.kind = AllocationEvent::Kind::kUse, .stream = 4294967295U, .block = 1}));
  EXPECT_EQ(text_of(log), kTraining);
}

TEST(AllocationLog, NeedsNoStep) {
  const AllocationLog log =
      read_allocation_log("vdnn-allocation-log 1\n# a program\n\na 5 0\na 6 1\nf 0 1\n");
  EXPECT_EQ(log.events.size(), 3U);
  EXPECT_EQ(log.step_begin, 3U);
  EXPECT_EQ(text_of(log), "vdnn-allocation-log 1\na 5 0\na 6 1\nf 0 1\n");
  EXPECT_EQ(read_allocation_log("vdnn-allocation-log 1"), AllocationLog{});
}

TEST(AllocationLog, KnowsWhatIsLiveAtMost) {
  EXPECT_EQ(peak_live_bytes(read_allocation_log("vdnn-allocation-log 1\n"
                                                "a 5 0\na 6 0\nf 0 0\na 7 0\nf 2 0\nf 1 0\na 12 0\n")),
            13U);
}

struct Bad {
  const char* lines;  // after the first
  const char* said;
};

class BadAllocationLog : public ::testing::TestWithParam<Bad> {};

TEST_P(BadAllocationLog, IsRefusedByItsLine) {
  try {
    read_allocation_log("vdnn-allocation-log 1\n" + std::string(GetParam().lines));
    FAIL() << "not refused";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().said), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BadAllocationLog,
    ::testing::Values(Bad{"b 5 0", "line 2 begins with none of"}, Bad{"a 5", "line 2 lacks a number"},
                      Bad{"a", "line 2 lacks a number"}, Bad{"a  5 0", "line 2 has no number"},
                      Bad{"a -5 0", "line 2 has no number of 64 bits"},
                      Bad{"a 18446744073709551616 0", "line 2 has no number of 64 bits"},
                      Bad{"a 5 4294967296", "line 2 has no number of 32 bits"},
                      Bad{"a 5 0 1", "line 2 has ' 1' after its last field"},
                      Bad{"a 5 0\r\n", "after its last field"},
                      Bad{"a 18446744073709551615 0\na 1 0", "line 3 cannot be: more bytes are live"},
                      Bad{"a 5 0\nf 1 0", "line 3 cannot be: there is no block 1"},
                      Bad{"a 5 0\nf 0 0\nf 0 0", "line 4 cannot be: there is no block 0"},
                      Bad{"a 5 0\nf 0 0\nu 0 0", "line 4 cannot be: there is no block 0"},
                      Bad{"step\nstep", "line 3 cannot be: there is a step already"},
                      Bad{"a 5 0\nstep\nf 0 0", "line 4 cannot be: a step frees block 0"},
                      Bad{"step\na 5 0\na 6 0\nf 1 0", "the step keeps 1 of the blocks"},
                      Bad{"steps", "begins with none of"}));

TEST(AllocationLog, OfAnotherKindOrVersionIsRefused) {
  for (const char* const text :
       {"", "\n", "vdnn-allocation-log 2\n", "vdnn-allocation-log 10\na 5 0", "a 5 0"}) {
    EXPECT_THROW(read_allocation_log(text), DataError) << text;
  }
}

TEST(AllocationLog, ThatCouldNotBeReadIsNotWritten) {
  using Kind = AllocationEvent::Kind;
  std::ostringstream out;
  EXPECT_THROW(write_allocation_log(out, {.events = {{.kind = Kind::kFree}}, .step_begin = 1}),
               InvalidArgument);
  EXPECT_THROW(write_allocation_log(out, {.events = {{.block = 1}}, .step_begin = 1}), InvalidArgument);
  EXPECT_THROW(write_allocation_log(out, {.events = {{.block = 0}}, .step_begin = 0}), InvalidArgument);
  EXPECT_THROW(write_allocation_log(out, {.events = {}, .step_begin = 1}), InvalidArgument);
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace vdnn::allocation_log_test
