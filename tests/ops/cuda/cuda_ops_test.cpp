#include "vdnn/cuda_ops.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "src/ops/cuda/cuda_ops.h"
#include "tests/fakes/emulated_kernels.h"
#include "tests/ops/layer_cases.h"
#include "tests/ops/loss_cases.h"
#include "vdnn/custom_layer.h"
#include "vdnn/error.h"

namespace vdnn::testing {
namespace {

struct VendorsLayer {
  LayerCase layer;
  const char* says;
};

// What has no kernel of our own is refused by name, when a network is lowered.
TEST(CudaCatalog, RefusesLayersOfVendorsLibrariesByName) {
  const auto library = make_emulated_cuda_ops(ThreadOrder::kForward);
  const Dims map{2, 4, 6, 6};
  for (const VendorsLayer& each :
       {VendorsLayer{convolution_case("", map, {4, {3, 3}, {1, 1}, {1, 1}}), "convolution (cuDNN)"},
        {transposed_convolution_case("", map, {4, {2, 2}, {2, 2}, {0, 0}}), "transposed convolution"},
        {fully_connected_case("", {2, 8}, {4}), "fully connected (cuBLASLt)"},
        {pooling_case("", map, {PoolingMode::kMax, {2, 2}, {2, 2}, {0, 0}}), "pooling"},
        {same_shape_case("", BatchNormalizationSpec{}, map), "batch normalisation"},
        {same_shape_case("", LrnSpec{}, map), "local response normalisation"},
        {same_shape_case("", SgdSpec{}, map), "not a layer"}}) {
    try {
      library->catalog().recipe(each.layer.spec, each.layer.inputs, std::array{each.layer.output},
                                Mode::kTraining);
      FAIL() << "accepted: " << each.says;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(each.says), std::string::npos) << error.what();
    }
  }
}

TEST(CudaCatalog, NamesItsSource) {
  EXPECT_EQ(make_emulated_cuda_ops(ThreadOrder::kForward)->catalog().algorithms_source(), "vdnn for cuda");
}

TEST(CudaOps, CompileRefusesAlgorithmsThatAreNotThere) {
  const auto library = make_emulated_cuda_ops(ThreadOrder::kForward);
  const OpHarness op(*library, relu_case({2, 3}));
  EXPECT_THROW(library->compile(op.tape(), std::vector<std::uint32_t>{0}), InvalidArgument);
  EXPECT_THROW(library->compile(op.tape(), std::vector<std::uint32_t>{0, 1}), InvalidArgument);
}

TEST(CudaOps, PackingRefusesWhatIsNoParameter) {
  const auto library = make_emulated_cuda_ops(ThreadOrder::kForward);
  OpHarness op(*library, same_shape_case("", GroupNormalizationSpec{.groups = 2}, {2, 4, 3, 3}));
  std::vector<float> scale(4);
  std::vector<float> wrong_size(5);
  EXPECT_NO_THROW(op.program().pack_parameter(0, scale, op.buffer(kFilter).data()));
  EXPECT_THROW(op.program().pack_parameter(0, wrong_size, op.buffer(kFilter).data()), InvalidArgument);
  EXPECT_THROW(op.program().unpack_parameter(2, op.buffer(kFilter).data(), scale), InvalidArgument);
}

// Remembers the streams, computes nothing.
class StreamRecorder final : public cuda::KernelTable {
 public:
  void launch(const cuda::Kernel&, void* stream) const override { streams.push_back(stream); }
  mutable std::vector<void*> streams;
};

class StreamLayer final : public CustomLayer {
 public:
  std::string kind() const override { return "stream"; }
  TensorType output(std::span<const TensorType> inputs) const override { return inputs[0]; }
  LayerRecipe describe(const CustomQuestion&) const override {
    using enum OperandRole;
    return {
        .forward = {{.reads = {{kInput, 0}}, .writes = {{kOutput, 0}}, .algorithms = {{.name = "plain"}}}}};
  }
  void run(const CustomLaunch& launch) const override { stream = launch.native_stream; }
  mutable void* stream = nullptr;
};

// All work of an op goes to the stream that it was given, that of layers from outside too.
TEST(CudaOps, WorkGoesToTheStreamThatWasGiven) {
  int stream = 0;
  const auto recorder = std::make_shared<StreamRecorder>();
  const auto library = cuda::make_cuda_ops(recorder);
  const auto run_all = [&](const LayerCase& layer) {
    OpHarness op(*library, layer);
    for (OpId id = 0; id < op.recipes().size(); ++id) {
      std::vector<AddressRange> reads;
      std::vector<AddressRange> writes;
      for (const Operand& operand : op.recipe(id).reads) {
        reads.push_back(op.buffer(operand).range());
      }
      for (const Operand& operand : op.recipe(id).writes) {
        writes.push_back(op.buffer(operand).range());
      }
      op.program().run(id, {.reads = reads, .writes = writes, .workspace = {}}, {}, &stream);
    }
  };
  run_all(relu_case({2, 3}));
  run_all(add_case({2, 3}));
  run_all(same_shape_case("", GroupNormalizationSpec{.groups = 2}, {2, 4, 70, 3}));
  run_all(class_loss_case(DiceCrossEntropySpec{}, {2, 3, 5, 5}));
  EXPECT_GT(recorder->streams.size(), 15U);
  EXPECT_EQ(std::vector<void*>(recorder->streams.size(), &stream), recorder->streams);

  const auto layer = std::make_shared<StreamLayer>();
  run_all(same_shape_case("", CustomSpec{layer}, {2, 3}));
  EXPECT_EQ(layer->stream, &stream);
}

}  // namespace
}  // namespace vdnn::testing
