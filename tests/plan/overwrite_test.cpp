#include "src/plan/overwrite.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/plan/tapes.h"

namespace vdnn::testing {
namespace {

// The reduction of a bucket is one op with one operand per gradient. Regression: each write recomputed all
// earlier writes recursively, so that 161 operands (ResNet-50) never finished.
TEST(Overwrite, ManyOperandsEachTakeTheirOwnRead) {
  constexpr std::uint32_t kOperands = 400;
  TapeDraft draft;
  const std::uint32_t layer = draft.layer("all");
  std::vector<ValueId> local;
  std::vector<ValueId> reduced;
  std::vector<Overwrite> permissions;
  for (std::uint32_t each = 0; each < kOperands; ++each) {
    local.push_back(draft.value("local" + std::to_string(each), ValueKind::kFeatureMap, 64));
    reduced.push_back(draft.value("reduced" + std::to_string(each), ValueKind::kFeatureMap, 64));
    permissions.push_back({.write = each, .read = each});
  }
  const ValueId images = draft.value("images", ValueKind::kInput, 64);
  draft.op("make", layer, Phase::kForward, {images}, local);
  draft.op("reduce", layer, Phase::kForward, local, reduced, std::move(permissions));
  const TapePtr tape = draft.finish();
  for (std::uint32_t each = 0; each < kOperands; ++each) {
    EXPECT_EQ(overwritten_read(*tape, 1, each), each);
  }
}

TEST(Overwrite, AReadIsTakenOnce) {
  TapeDraft draft;
  const std::uint32_t layer = draft.layer("all");
  const ValueId images = draft.value("images", ValueKind::kInput, 64);
  const ValueId x = draft.value("x", ValueKind::kFeatureMap, 64);
  const ValueId first = draft.value("first", ValueKind::kFeatureMap, 64);
  const ValueId second = draft.value("second", ValueKind::kFeatureMap, 64);
  draft.op("make", layer, Phase::kForward, {images}, {x});
  draft.op("split", layer, Phase::kForward, {x}, {first, second},
           {{.write = 0, .read = 0}, {.write = 1, .read = 0}});
  const TapePtr tape = draft.finish();
  EXPECT_EQ(overwritten_read(*tape, 1, 0), 0U);
  EXPECT_EQ(overwritten_read(*tape, 1, 1), std::nullopt);
}

}  // namespace
}  // namespace vdnn::testing
