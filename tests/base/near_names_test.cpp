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

// Regression: a swap counted as two edits, so "trian" was as far from "train" as "grain" is from "trial".
TEST(NearNames, ASwapOfNeighboursIsOneEdit) {
  EXPECT_EQ(edit_distance("trian", "train"), 1U);
  EXPECT_EQ(edit_distance("ab", "ba"), 1U);
  EXPECT_EQ(edit_distance("abcd", "badc"), 2U);
  EXPECT_EQ(edit_distance("ca", "abc"), 3U) << "no part is edited twice";
}

TEST(NearNames, SuggestsOnlyWhatIsNear) {
  const std::vector<std::string> names{"train", "plan", "max-batch", "sweep"};
  EXPECT_EQ(did_you_mean("trian", names), " (did you mean 'train'?)");
  EXPECT_EQ(did_you_mean("plans", names), " (did you mean 'plan'?)");
  EXPECT_EQ(did_you_mean("maxbatch", names), " (did you mean 'max-batch'?)");
  EXPECT_EQ(did_you_mean("max_batches", names), " (did you mean 'max-batch'?)");
  EXPECT_EQ(did_you_mean("pool", names), "");
  EXPECT_EQ(did_you_mean("deploy", names), "");
  EXPECT_EQ(did_you_mean("x", {"y"}), "") << "any letter is one edit from any other";
  EXPECT_EQ(did_you_mean("", names), "");
  EXPECT_EQ(did_you_mean("train", {}), "");
}

TEST(NearNames, TheNearestThreeComeFirst) {
  EXPECT_EQ(near_names("conv1.y", {"fc.bias", "conv11.y", "relu1.y", "conv2.y", "images"}),
            "conv11.y, conv2.y, relu1.y");
  EXPECT_EQ(near_names("x", {"y"}), "y");
  EXPECT_EQ(near_names("x", {}), "");
}

}  // namespace
}  // namespace vdnn
