#include "src/base/near_names.h"

#include <gtest/gtest.h>

namespace vdnn {
namespace {

TEST(NearNames, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("conv1", "conv1"), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("sitting", "kitten"), 3U);
}

TEST(NearNames, TheNearestThreeComeFirst) {
  EXPECT_EQ(near_names("conv1.y", {"fc.bias", "conv11.y", "relu1.y", "conv2.y", "images"}),
            "conv11.y, conv2.y, relu1.y");
  EXPECT_EQ(near_names("x", {"y"}), "y");
  EXPECT_EQ(near_names("x", {}), "");
}

}  // namespace
}  // namespace vdnn
