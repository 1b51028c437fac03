#include "vdnn/error.h"

#include <gtest/gtest.h>

#include <string>

namespace vdnn {
namespace {

TEST(OutOfMemoryError, SaysAllItsNumbersAndKeepsThem) {
  const OutOfMemory error("pool", {.asked = 7,
                                   .in_use = 6,
                                   .cached = 5,
                                   .largest_free_block = 4,
                                   .budget = 3 << 10,
                                   .would_have_fitted = 2});
  const std::string text = error.what();
  EXPECT_EQ(text,
            "pool: asked 7 bytes, in use 6 bytes, cached 5 bytes, largest free block 4 bytes, budget 3 KiB "
            "(3072 bytes); 2 bytes would have fitted");
  EXPECT_EQ(error.shortage().asked, 7U);
  EXPECT_EQ(error.shortage().would_have_fitted, 2U);
}

TEST(OutOfMemoryError, OfAPlanHasItsOwnTextAlone) {
  const OutOfMemory error("policy none needs 2 bytes more", 7, 5);
  EXPECT_STREQ(error.what(), "policy none needs 2 bytes more");
  EXPECT_EQ(error.shortage().asked, 7U);
  EXPECT_EQ(error.shortage().budget, 5U);
  EXPECT_EQ(error.shortage().would_have_fitted, 5U);
}

TEST(DeviceErrors, AreLostOnlyWhereSaid) {
  EXPECT_FALSE(DeviceError("late").lost());
  EXPECT_TRUE(DeviceError("gone", true).lost());
}

}  // namespace
}  // namespace vdnn
