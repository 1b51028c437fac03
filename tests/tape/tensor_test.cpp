#include "vdnn/tensor.h"

#include <gtest/gtest.h>

#include "vdnn/error.h"

namespace vdnn {
namespace {

TEST(Tensor, CountsElementsAndBytesOfEachType) {
  EXPECT_EQ(element_count({64, 32, 28, 28}), 64u * 32 * 28 * 28);
  EXPECT_EQ(element_count({7}), 7u);
  EXPECT_EQ((TensorType{DataType::kF32, {2, 3}}).bytes(), 24u);
  EXPECT_EQ((TensorType{DataType::kI32, {5}}).bytes(), 20u);
  EXPECT_EQ((TensorType{DataType::kU8, {2, 3, 4, 4}}).bytes(), 96u);
}

TEST(Tensor, CountsBeyond32Bits) {
  EXPECT_EQ((TensorType{DataType::kF32, {65536, 65536, 2}}).bytes(), std::uint64_t{1} << 35);
}

TEST(Tensor, RejectsDimensionsThatAreNotPositive) {
  EXPECT_THROW(element_count({4, 0}), InvalidArgument);
  EXPECT_THROW(element_count({4, -1}), InvalidArgument);
}

TEST(Tensor, RejectsOverflowOfElementsAndOfBytes) {
  const std::int64_t huge = std::int64_t{1} << 32;
  EXPECT_THROW(element_count({huge, huge}), InvalidArgument);
  const TensorType bytes_only{DataType::kF32, {huge, huge / 4}};
  EXPECT_EQ(bytes_only.elements(), std::uint64_t{1} << 62);
  EXPECT_THROW(bytes_only.bytes(), InvalidArgument);
}

TEST(Tensor, KnowsItsDimensionsOfSpace) {
  EXPECT_EQ((TensorType{DataType::kF32, {2, 3, 4, 5, 6}}).spatial_rank(), 3u);
  EXPECT_EQ((TensorType{DataType::kF32, {2, 3, 4, 5}}).spatial_rank(), 2u);
  EXPECT_EQ((TensorType{DataType::kF32, {2, 3}}).spatial_rank(), 0u);
  EXPECT_EQ((TensorType{DataType::kF32, {2}}).spatial_rank(), 0u);
}

TEST(Tensor, WritesDimensions) {
  EXPECT_EQ(to_string(Dims{64, 32, 28, 28}), "64x32x28x28");
  EXPECT_EQ(to_string(Dims{}), "");
}

}  // namespace
}  // namespace vdnn
