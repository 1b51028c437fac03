// An op is refused if any of its parts touches memory outside its operands. Without this refusal, whole steps
// on the recording library would not check operands.

#include "tests/fakes/recording_cuda_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "streams/cuda/cuda_device.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/fakes/fake_vendor_library.h"
#include "tests/ops/layer_cases.h"
#include "tests/ops/op_harness.h"
#include "vdnn/error.h"

namespace vdnn::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kPiece = std::uint64_t{1} << 20U;

class RecordingOpsTest : public ::testing::Test {
 protected:
  RecordingOpsTest() { device_->commit(memory_); }

  // Runs the gradient of a filter: a product of the vendor's library, then sums by our own kernels in the
  // same workspace. Returns the message with which the op is refused, or "".
  std::string run(std::uint64_t workspace_bytes) {
    const OpHarness op(*library_, convolution_case("", {2, 4, 6, 6}, {4, {3, 3}, {1, 1}, {1, 1}}));
    const OpId id = op.writer({OperandRole::kParameterGradient, 0});
    const auto program = library_->compile(op.tape(), std::vector<std::uint32_t>(op.tape().ops().size(), 0));
    std::uint64_t next = memory_.begin;
    const auto place = [&](const std::vector<ValueId>& values) {
      std::vector<AddressRange> ranges(values.size());
      std::ranges::transform(values, ranges.begin(), [&](ValueId value) {
        return AddressRange{.begin = std::exchange(next, next + kPiece),
                            .bytes = op.tape().value(value).bytes};
      });
      return ranges;
    };
    const auto reads = place(op.tape().op(id).reads);
    const auto writes = place(op.tape().op(id).writes);
    op_name_ = op.tape().op(id).name;
    planned_bytes_ = op.tape().op(id).algorithms[0].workspace_bytes;
    const OpOperands operands{
        .reads = reads, .writes = writes, .workspace = {.begin = next, .bytes = workspace_bytes}};
    device_->submit(stream_, {.name = "op", .reads = {}, .writes = {}, .cost = {}, .run = [&](void* native) {
                                program->run(id, operands, {}, native);
                              }});
    try {
      device_->synchronize_all();
    } catch (const DeviceError& error) {
      device_->recover();
      return error.what();
    }
    return "";
  }

  const std::shared_ptr<FakeCuda> fake_ = std::make_shared<FakeCuda>(FakeCudaOptions{.logical_memory = true});
  const std::unique_ptr<Device> device_ = make_cuda_device({}, fake_);
  const AddressRange memory_ = device_->reserve(16 * kPiece);
  const StreamId stream_ = device_->create_stream("compute");
  const std::unique_ptr<OpLibrary> library_ = make_recording_cuda_ops(make_fake_engines());
  std::string op_name_;
  std::uint64_t planned_bytes_ = 0;  // planned workspace
};

TEST_F(RecordingOpsTest, WhatLiesWithinTheOperandsIsRecordedUnderTheOpsName) {
  EXPECT_EQ(run(kPiece), "");
  EXPECT_EQ(run(planned_bytes_), "") << "the planned workspace suffices exactly";
  EXPECT_THAT(fake_->findings(), IsEmpty());
  device_->submit(device_->create_stream("other"),
                  {.name = "write", .reads = {}, .writes = {}, .cost = {}, .run = [&](void* native) {
                     const Access everything{.range = memory_};
                     FakeCuda::launch(native, [] {}, {.name = "intruder", .writes = {&everything, 1}});
                   }});
  EXPECT_THAT(fake_->findings(), IsEmpty()) << "the host has waited, so the accesses are ordered";
  run(kPiece);
  ASSERT_FALSE(fake_->findings().empty());
  EXPECT_EQ(fake_->findings()[0].first, "intruder");
  EXPECT_EQ(fake_->findings()[0].second, op_name_);
}

TEST_F(RecordingOpsTest, WorkspaceOfTheVendorsLibraryThatIsNotTheOpsIsRefused) {
  EXPECT_THAT(run(0), AllOf(HasSubstr("convolution large"), HasSubstr("outside of what the op writes")));
}

TEST_F(RecordingOpsTest, AnAddressOfAKernelThatIsNotTheOpsIsRefused) {
  // Enough workspace for the product, but not for the following sums.
  EXPECT_THAT(run(256), AllOf(HasSubstr("kernel bias_gradient"), HasSubstr("outside of the op's operands")));
}

}  // namespace
}  // namespace vdnn::testing
