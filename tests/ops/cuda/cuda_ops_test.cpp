#include "vdnn/cuda_ops.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include "src/ops/cuda/cuda_ops.h"
#include "src/ops/cuda/known_gpus.h"
#include "src/ops/cuda/recorded_engines.h"
#include "tests/fakes/emulated_kernels.h"
#include "tests/fakes/fake_vendor_library.h"
#include "tests/ops/layer_cases.h"
#include "tests/ops/loss_cases.h"
#include "vdnn/custom_layer.h"
#include "vdnn/error.h"

namespace vdnn::testing {
namespace {

// Lowering refuses a convolution without a known engine; the message has the question and the reason.
TEST(CudaCatalog, SaysWhereAConvolutionHasNoEngine) {
  const auto library = cuda::make_cuda_ops(
      {.kernels = make_emulated_kernels(ThreadOrder::kForward),
       .vendor = std::make_shared<FakeVendorLibrary>(),
       .engines = std::make_shared<cuda::RecordedEngines>(cuda::known_gpus()[0].recorded_engines)});
  const LayerCase unrecorded = convolution_case("", {3, 5, 7, 9}, {2, {3, 3}, {1, 1}, {1, 1}});
  try {
    library->catalog().recipe(unrecorded.spec, unrecorded.inputs, std::array{unrecorded.output},
                              Mode::kTraining);
    FAIL() << "accepted";
  } catch (const cuda::NoEngine& error) {
    EXPECT_NE(std::string(error.what()).find("batch 3, 5x7x9 to 2x7x9"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("record"), std::string::npos) << error.what();
  }
}

TEST(CudaCatalog, RefusesWhatIsNoLayerAndWhatCudnnCannot) {
  const auto library = make_emulated_cuda_ops(ThreadOrder::kForward);
  const TensorType map{.dims = {2, 4, 6, 6}};
  const auto recipe = [&](const OpSpec& spec) {
    return library->catalog().recipe(spec, std::array{map}, std::array{map}, Mode::kTraining);
  };
  EXPECT_THROW(recipe(SgdSpec{}), InvalidArgument);
  EXPECT_THROW(recipe(LrnSpec{.size = 17}), InvalidArgument);
  EXPECT_THROW(recipe(LrnSpec{.k = 0}), InvalidArgument);
  EXPECT_THROW(recipe(LrnSpec{.beta = 0.001F}), InvalidArgument);
  EXPECT_NO_THROW(recipe(LrnSpec{.size = 15}));
}

// Regression: such a map was refused only when a run was compiled, and only if one dimension or stride alone
// did not fit into 32 bits.
TEST(CudaCatalog, RefusesMapsWhoseElementsCudnnCannotIndex) {
  const auto library = make_emulated_cuda_ops(ThreadOrder::kForward);
  const auto refusal = [&](const OpSpec& spec, std::int64_t batch) -> std::string {
    const TensorType map{.dims = {batch, 64, 256, 256}};
    try {
      library->catalog().recipe(spec, std::array{map}, std::array{map}, Mode::kTraining);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  const PoolingSpec pooling{.mode = PoolingMode::kMax, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}};
  for (const OpSpec& spec : {OpSpec(pooling), OpSpec(LrnSpec{})}) {
    EXPECT_EQ(refusal(spec, 511), "");
    EXPECT_NE(refusal(spec, 512).find("512x64x256x256 has 2147483648 elements; cuDNN indexes 2147483647"),
              std::string::npos)
        << refusal(spec, 512);
  }
}

TEST(CudaCatalog, NamesItsSource) {
  EXPECT_EQ(make_emulated_cuda_ops(ThreadOrder::kForward)->catalog().algorithms_source(), "fake engines");
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

// Records the streams and computes nothing.
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

// All work of an op, custom layers included, goes to the stream that the caller passes.
TEST(CudaOps, WorkGoesToTheStreamThatWasGiven) {
  int stream = 0;
  const auto recorder = std::make_shared<StreamRecorder>();
  const auto vendor = std::make_shared<FakeVendorLibrary>();
  const auto library =
      cuda::make_cuda_ops({.kernels = recorder, .vendor = vendor, .engines = make_fake_engines()});
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
      const GuardedBuffer workspace(op.recipe(id).algorithms[0].workspace_bytes);
      op.program().run(id, {.reads = reads, .writes = writes, .workspace = workspace.range()}, {}, &stream);
    }
  };
  run_all(relu_case({2, 3}));
  run_all(add_case({2, 3}));
  run_all(same_shape_case("", GroupNormalizationSpec{.groups = 2}, {2, 4, 70, 3}));
  run_all(class_loss_case(DiceCrossEntropySpec{}, {2, 3, 5, 5}));
  EXPECT_GT(recorder->streams.size(), 15U);
  EXPECT_EQ(std::vector<void*>(recorder->streams.size(), &stream), recorder->streams);

  run_all(convolution_case("", {2, 4, 6, 6}, {4, {3, 3}, {1, 1}, {1, 1}}));
  run_all(fully_connected_case("", {2, 8}, {4}));
  run_all(pooling_case("", {2, 4, 6, 6}, {PoolingMode::kMax, {2, 2}, {2, 2}, {0, 0}}));
  run_all(same_shape_case("", LrnSpec{}, {2, 4, 6, 6}));
  ASSERT_EQ(vendor->calls().size(), 10U);
  for (const VendorCall& call : vendor->calls()) {
    EXPECT_EQ(call.stream, &stream) << call.name;
  }
  EXPECT_EQ(std::vector<void*>(recorder->streams.size(), &stream), recorder->streams);

  const auto layer = std::make_shared<StreamLayer>();
  run_all(same_shape_case("", CustomSpec{layer}, {2, 3}));
  EXPECT_EQ(layer->stream, &stream);
}

// Records the algorithm and the precision of every product.
class ProductRecorder final : public FakeVendorLibrary {
 public:
  std::unique_ptr<cuda::VendorOp> convolution(const cuda::EngineQuestion& question,
                                              const std::string& engine) override {
    asked.insert(engine);
    return FakeVendorLibrary::convolution(question, engine);
  }
  std::unique_ptr<cuda::VendorOp> matrix_product(const cuda::MatrixProduct& product) override {
    asked.insert(product.tf32 ? "tf32" : "fp32");
    return FakeVendorLibrary::matrix_product(product);
  }

  std::set<std::string> asked;
};

// "small" rounds to TF32 and "large" does not.
class RoundingEngines final : public cuda::EngineSource {
 public:
  std::string name() const override { return "rounding engines"; }

 private:
  std::vector<cuda::Engine> do_list(const cuda::EngineQuestion& question) const override {
    std::vector<cuda::Engine> engines = make_fake_engines()->list(question);
    engines.at(1).notes = {cuda::NumericalNote::kTensorCore};
    return {engines[1], engines[0]};
  }
};

// TF32 algorithms have their own names, and an op requests the algorithm of its name from the library.
TEST(CudaOps, Tf32IsTakenWhereItIsPermittedAndUnderNamesOfItsOwn) {
  using Names = std::set<std::string>;
  for (const auto precision : {cuda::ProductPrecision::kFp32, cuda::ProductPrecision::kTf32}) {
    const bool tf32 = precision == cuda::ProductPrecision::kTf32;
    const auto vendor = std::make_shared<ProductRecorder>();
    const auto library =
        cuda::make_cuda_ops({.kernels = make_emulated_kernels(ThreadOrder::kForward),
                             .vendor = vendor,
                             .engines = std::make_shared<RoundingEngines>(),
                             .precisions = {.convolutions = precision, .matrix_products = precision}});
    Names algorithms;
    for (const LayerCase& layer : {convolution_case("", {2, 4, 6, 6}, {4, {3, 3}, {1, 1}, {1, 1}}),
                                   fully_connected_case("", {2, 8}, {4})}) {
      const OpHarness op(*library, layer);
      for (const OpRecipe& recipe : op.recipes()) {
        algorithms.insert(recipe.algorithms[0].name);
      }
    }
    EXPECT_EQ(algorithms, tf32 ? Names({"small in tf32", "cublaslt in tf32"}) : Names({"large", "cublaslt"}));
    EXPECT_EQ(vendor->asked, tf32 ? Names({"small", "tf32"}) : Names({"large", "fp32"}));
    EXPECT_EQ(library->catalog().algorithms_source(), tf32 ? "rounding engines, tf32" : "rounding engines");
  }
}

// Records the types of every requested product.
class TypeRecorder final : public FakeVendorLibrary {
 public:
  std::unique_ptr<cuda::VendorOp> convolution(const cuda::EngineQuestion& question,
                                              const std::string& engine) override {
    convolutions.insert(question.elements);
    return FakeVendorLibrary::convolution(question, engine);
  }
  std::unique_ptr<cuda::VendorOp> matrix_product(const cuda::MatrixProduct& product) override {
    products.insert({product.factors, product.result});
    return FakeVendorLibrary::matrix_product(product);
  }
  std::unique_ptr<cuda::VendorOp> pooling(const cuda::PoolingProblem& problem) override {
    pools.insert(problem.elements);
    return FakeVendorLibrary::pooling(problem);
  }

  std::set<DataType> convolutions;
  std::set<std::pair<DataType, DataType>> products;
  std::set<DataType> pools;
};

TEST(CudaOps, NarrowMapsAreComputedInTheirTypeAndMatrixGradientsInFp32) {
  for (const DataType type : {DataType::kF32, DataType::kBf16, DataType::kF16}) {
    const auto vendor = std::make_shared<TypeRecorder>();
    const auto library = cuda::make_cuda_ops({.kernels = make_emulated_kernels(ThreadOrder::kForward),
                                              .vendor = vendor,
                                              .engines = make_fake_engines()});
    for (const LayerCase& layer :
         {convolution_case("", {2, 4, 6, 6}, {4, {3, 3}, {1, 1}, {1, 1}}),
          transposed_convolution_case("", {2, 4, 6, 6}, {4, {2, 2}, {2, 2}, {0, 0}}),
          fully_connected_case("", {2, 8}, {4}),
          pooling_case("", {2, 4, 6, 6}, {PoolingMode::kMax, {2, 2}, {2, 2}, {0, 0}})}) {
      const OpHarness op(*library, in_type(layer, type));
    }
    EXPECT_EQ(vendor->convolutions, std::set{type});
    EXPECT_EQ(vendor->products, (std::set{std::pair(type, type), std::pair(type, DataType::kF32)}));
    EXPECT_EQ(vendor->pools, std::set{type});
  }
}

// cuDNN has no engine that reads narrow maps and writes an fp32 gradient, so the narrow gradient first goes
// to the workspace.
TEST(CudaOps, WorkspaceHasRoomForANarrowGradientOfAFilter) {
  const auto library = make_emulated_cuda_ops(ThreadOrder::kForward);
  const auto workspaces = [&](DataType type) {
    const ConvolutionSpec spec{
        .filters = 6, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}, .bias = false};
    const OpHarness op(*library, in_type(convolution_case("", {2, 4, 6, 6}, spec), type));
    std::vector<std::uint64_t> bytes;
    for (const OpRecipe& recipe : op.recipes()) {
      bytes.push_back(recipe.algorithms.back().workspace_bytes);
    }
    return bytes;
  };
  EXPECT_EQ(workspaces(DataType::kF32), (std::vector<std::uint64_t>{0, 0, 0}));
  constexpr std::uint64_t kGradient = 512;  // 6 x 4 x 3 x 3 elements of two bytes, rounded up to 256
  EXPECT_EQ(workspaces(DataType::kBf16), (std::vector<std::uint64_t>{0, kGradient, 0}));
}

// Regression: every product counted 4 MiB of workspace, so that no smaller workspace limit could be met.
TEST(CudaOps, FullyConnectedLayersHaveAWayWithoutWorkspace) {
  const auto vendor = std::make_shared<FakeVendorLibrary>();
  const auto library = cuda::make_cuda_ops({.kernels = make_emulated_kernels(ThreadOrder::kForward),
                                            .vendor = vendor,
                                            .engines = make_fake_engines()});
  constexpr std::uint64_t kProduct = std::uint64_t{4} << 20U;
  OpHarness op(*library, fully_connected_case("", {2, 8}, {.outputs = 4}));
  for (OpId id = 0; id < op.recipes().size(); ++id) {
    const std::vector<Algorithm>& ways = op.recipe(id).algorithms;
    ASSERT_EQ(ways.size(), 2U);
    EXPECT_EQ(ways[0].name, "cublaslt") << "older records under this name are still found";
    EXPECT_EQ(ways[0].workspace_bytes, kProduct);
    EXPECT_EQ(ways[1].name, "cublaslt without workspace");
    const bool sums_bias = op.recipe(id).direction == Direction::kBackwardFilter;
    EXPECT_EQ(ways[1].workspace_bytes > 0, sums_bias) << "only the bias's gradient needs workspace";
    EXPECT_LT(ways[1].workspace_bytes, kProduct);
    for (std::uint32_t way = 0; way < ways.size(); ++way) {
      op.run(id, {.algorithm = way, .in_place = {}});
      EXPECT_EQ(vendor->calls().back().workspace.bytes > 0, way == 0) << ways[way].name;
    }
  }
}

// Needs more workspace on the device than the engine source reported.
class GreedyLibrary final : public FakeVendorLibrary {
 public:
  std::unique_ptr<cuda::VendorOp> convolution(const cuda::EngineQuestion& question,
                                              const std::string&) override {
    return FakeVendorLibrary::convolution(question, "large");
  }
};

// An op never uses more workspace than was planned.
TEST(CudaOps, CompileRefusesMoreWorkspaceThanWasPlanned) {
  const auto library = cuda::make_cuda_ops({.kernels = make_emulated_kernels(ThreadOrder::kForward),
                                            .vendor = std::make_shared<GreedyLibrary>(),
                                            .engines = make_fake_engines()});
  const ConvolutionSpec spec{
      .filters = 4, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}, .bias = false};
  const OpHarness op(*library, convolution_case("", {2, 4, 6, 6}, spec));
  const std::vector<std::uint32_t> planned(op.tape().ops().size(), 1);
  try {
    library->compile(op.tape(), planned);
    FAIL() << "accepted";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("small needs 256 bytes of workspace on this device, but 0 were planned"),
              std::string::npos)
        << error.what();
  }
}

// The fake must refuse the calls that its header lists; otherwise the conformance tests would not check
// operands.
class FakeVendor : public ::testing::Test {
 protected:
  AddressRange a() const { return a_.range(); }
  AddressRange b() const { return b_.range(); }
  AddressRange c() const { return c_.range(); }
  AddressRange workspace() const { return workspace_.range(); }

  void run(const AddressRange& a, const AddressRange& c, const AddressRange& workspace) {
    const std::array<AddressRange, 2> reads{a, b()};
    product_->run({.reads = reads, .write = c, .workspace = workspace}, nullptr);
  }

  FakeVendorLibrary library_;
  std::unique_ptr<cuda::VendorOp> product_ =
      library_.matrix_product({.rows = 4, .columns = 4, .inner = 8, .most_workspace_bytes = 4096});

 private:
  static constexpr std::size_t kFloat = sizeof(float);
  GuardedBuffer a_{kFloat * 4 * 8};
  GuardedBuffer b_{kFloat * 8 * 4};
  GuardedBuffer c_{kFloat * 4 * 4};
  GuardedBuffer workspace_{product_->workspace_bytes()};
};

TEST_F(FakeVendor, RecordsWhatItRuns) {
  run(a(), c(), workspace());
  ASSERT_EQ(library_.calls().size(), 1U);
  EXPECT_EQ(library_.calls()[0].reads, (std::vector{a(), b()}));
  EXPECT_EQ(library_.calls()[0].write, c());
  EXPECT_EQ(library_.calls()[0].workspace, workspace());
}

TEST_F(FakeVendor, RefusesWhatIsOfAnotherType) {
  const auto product = [&](const cuda::MatrixProduct& types) {
    return library_.matrix_product({.rows = 4,
                                    .columns = 4,
                                    .inner = 8,
                                    .tf32 = types.tf32,
                                    .factors = types.factors,
                                    .result = types.result});
  };
  using enum DataType;
  EXPECT_THROW(product({.factors = kBf16, .result = kF16}), DeviceError);
  EXPECT_THROW(product({.factors = kF32, .result = kBf16}), DeviceError);
  EXPECT_THROW(product({.tf32 = true, .factors = kBf16, .result = kBf16}), DeviceError);
  EXPECT_THROW(product({.factors = kU8, .result = kU8}), DeviceError);
  product_ = product({.factors = kBf16, .result = kF32});
  EXPECT_THROW(run(a(), c(), {}), DeviceError) << "the factors have four bytes per element";

  cuda::EngineQuestion question{.convolution = {.batch = 1,
                                                .input_channels = 1,
                                                .output_channels = 1,
                                                .input = {3, 3},
                                                .output = {3, 3},
                                                .kernel = {1, 1},
                                                .stride = {1, 1},
                                                .padding = {0, 0},
                                                .dilation = {}}};
  EXPECT_NE(library_.convolution(question, "small"), nullptr);
  question.elements = kBf16;
  EXPECT_THROW(library_.convolution(question, "small"), DeviceError) << "the engine is for fp32";
  EXPECT_THROW(library_.convolution(question, fake_engine_name("small", kF16)), DeviceError);
  EXPECT_NE(library_.convolution(question, fake_engine_name("small", kBf16)), nullptr);
}

TEST_F(FakeVendor, RefusesWhatAGpuWouldNotForgive) {
  const auto moved = [](AddressRange range, std::uint64_t begin, std::uint64_t bytes) {
    return AddressRange{.begin = range.begin + begin, .bytes = range.bytes + bytes};
  };
  const std::uint64_t none = 0;
  EXPECT_THROW(run(moved(a(), none - 4, 0), c(), workspace()), DeviceError) << "misaligned";
  EXPECT_THROW(run(moved(a(), 0, none - 16), c(), workspace()), DeviceError) << "too short";
  EXPECT_THROW(run(a(), moved(a(), 0, c().bytes - a().bytes), workspace()), DeviceError) << "overlap";
  EXPECT_THROW(run(a(), c(), moved(workspace(), 0, none - 256)), DeviceError) << "less workspace";
  EXPECT_THROW(run(a(), moved(workspace(), 0, c().bytes - workspace().bytes), workspace()), DeviceError)
      << "the result lies in the workspace";
  EXPECT_TRUE(library_.calls().empty());
}

}  // namespace
}  // namespace vdnn::testing
