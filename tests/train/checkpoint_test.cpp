#include "vdnn/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <csignal>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/data/samples.h"
#include "tests/process.h"
#include "tests/temporary_directory.h"
#include "vdnn/error.h"
#include "vdnn/sha256.h"
#include "vdnn/trainer.h"
#include "vdnn/zoo.h"

namespace vdnn::checkpoint_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

constexpr std::int64_t kBatch = 8;
constexpr std::uint64_t kAmple = std::uint64_t{1} << 30;

Network lenet() {
  return make_model({.model = "lenet", .batch = kBatch});
}

// In this network, forward writes running statistics, and dropout depends on seed and step.
Network with_normalization_and_dropout() {
  NetworkBuilder net("normed", {kBatch, 1, 12, 12});
  Tensor x = net.convolution("conv1", net.input(),
                             {.filters = 6, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
  x = net.relu("relu1", net.batch_normalization("norm1", x));
  x = net.dropout("drop1", net.pooling("pool1", x, {.kernel = {2, 2}, .stride = {2, 2}, .padding = {0, 0}}));
  net.softmax_cross_entropy("loss", net.fully_connected("fc", x, {.outputs = 10}));
  return std::move(net).build();
}

Network tiny(std::int64_t filters = 3, const std::string& name = "tiny", const std::string& layer = "conv1") {
  NetworkBuilder net(name, {2, 2, 6, 6});
  const Tensor x = net.convolution(
      layer, net.input(), {.filters = filters, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
  net.softmax_cross_entropy("loss", net.fully_connected("fc", net.relu("relu1", x), {.outputs = 4}));
  return std::move(net).build();
}

RunOptions run_options(const TrainingOptions& training, Policy policy = Policy::kOffloadNone,
                       AlgorithmPreference algorithms = AlgorithmPreference::kPerformance) {
  return {.device = "cpu",
          .memory_bytes = kAmple,
          .host_memory_bytes = kAmple,
          .threads = 1,
          .policy = policy,
          .algorithms = algorithms,
          .training = training};
}

// --- training that was interrupted -------------------------------------------------------------------------

constexpr std::uint64_t kSamples = 36;  // five steps per epoch, the last one short
constexpr std::uint64_t kSteps = 12;

struct Case {
  const char* name;
  Network (*network)();
  TrainingOptions training;
  const char* schedule = "constant";
  bool augment = false;
};

class Resumed : public testing::TemporaryDirectory, public ::testing::WithParamInterface<Case> {
 protected:
  static DatasetSplits data(const Network& network) {
    DatasetOptions options = dataset_options(network, "synthetic", 5);
    options.augment = GetParam().augment;
    options.crop_padding = 2;
    DatasetSplits splits = open_dataset(options);
    splits.training = std::make_unique<testing::FirstSamples>(std::move(splits.training), kSamples);
    splits.test = std::make_unique<testing::FirstSamples>(std::move(splits.test), 11);
    return splits;
  }
  static TrainOptions train_options() {
    return {.learning_rate = 0.003,
            .learning_rate_schedule = GetParam().schedule,
            .steps = kSteps,
            .session = {.seed = 5}};
  }
  fs::path after(std::uint64_t step) const { return directory_ / ("step-" + std::to_string(step)); }

  // The result of a training run that writes a checkpoint after every step.
  TrainingResult uninterrupted() const {
    const PlannedRun run = plan_run(GetParam().network(), run_options(GetParam().training));
    const DatasetSplits splits = data(run.own_network());
    TrainOptions options = train_options();
    options.save = [this](Session& session) { save_checkpoint(after(session.steps()), session); };
    options.save_every = 1;
    TrainingResult result = Trainer(run, splits, options).train({});
    EXPECT_EQ(result.peak_bytes, run.prediction.peak_bytes);
    EXPECT_EQ(result.host_bytes, run.prediction.host_bytes);
    EXPECT_EQ(result.system_allocations_after_first_step, 0U);
    return result;
  }

  // The result of a training run resumed under another policy, in its smallest budget, with another
  // preference of algorithms.
  TrainingResult resumed(std::uint64_t step, Policy policy, std::uint64_t seed_offset = 0) const {
    const Checkpoint checkpoint(after(step));
    const Network network = GetParam().network();
    RunOptions options = run_options(GetParam().training, policy, AlgorithmPreference::kMemory);
    options.memory_bytes = plan_resumed_run(checkpoint, network, options).smallest_budget_bytes();
    const PlannedRun run = plan_resumed_run(checkpoint, network, options);
    const DatasetSplits splits = data(network);
    TrainOptions train = train_options();
    train.session.seed = 77;  // the checkpoint's seed has precedence
    train.start = checkpoint.state(run);
    train.start->seed += seed_offset;
    TrainingResult result = Trainer(run, splits, train).train({});
    EXPECT_EQ(result.steps, kSteps - step);
    EXPECT_EQ(result.peak_bytes, run.prediction.peak_bytes);
    EXPECT_EQ(result.system_allocations_after_first_step, 0U);
    return result;
  }
};

TEST_P(Resumed, TrainingEndsWithTheSameBits) {
  const TrainingResult whole = uninterrupted();
  for (const auto& [step, policy] :
       std::vector<std::pair<std::uint64_t, Policy>>{{1, Policy::kOffloadNone},
                                                     {3, Policy::kOffloadAll},
                                                     {5, Policy::kOffloadConv},
                                                     {10, Policy::kBaseline},
                                                     {11, Policy::kOffloadAll}}) {
    SCOPED_TRACE("interrupted after step " + std::to_string(step) + ", then " + to_string(policy));
    const TrainingResult rest = resumed(step, policy);
    EXPECT_EQ(rest.weights_sha256, whole.weights_sha256);
    EXPECT_EQ(rest.loss, whole.loss);
  }
  EXPECT_NE(resumed(3, Policy::kOffloadNone, 1).weights_sha256, whole.weights_sha256)
      << "the seed determines the order of samples";
}

TEST_P(Resumed, SavingChangesNothing) {
  const std::string saving = uninterrupted().weights_sha256;
  const PlannedRun run = plan_run(GetParam().network(), run_options(GetParam().training));
  const DatasetSplits splits = data(run.own_network());
  EXPECT_EQ(Trainer(run, splits, train_options()).train({}).weights_sha256, saving);
}

constexpr AdamSpec kAdamW{.beta1 = 0.8F, .weight_decay = 0.02F, .decoupled = true};

INSTANTIATE_TEST_SUITE_P(
    Trainings, Resumed,
    ::testing::Values(
        Case{"LenetSgd",
             lenet,
             {.optimizer = SgdSpec{.momentum = 0.9F, .weight_decay = 5e-4F}},
             "step:2e:0.5"},
        Case{"LenetAdam", lenet, {.optimizer = AdamSpec{}}},
        Case{"LenetAdamW", lenet, {.optimizer = kAdamW, .clip_norm = 0.5F}, "cosine:0.1,warmup:4"},
        Case{"LenetAugmented", lenet, {.optimizer = SgdSpec{.momentum = 0.9F}}, "constant", true},
        Case{"NormalizedWithDropout",
             with_normalization_and_dropout,
             {.optimizer = SgdSpec{.momentum = 0.9F}}},
        Case{"NormalizedWithDropoutAdam",
             with_normalization_and_dropout,
             {.optimizer = AdamSpec{}, .clip_norm = 1.0F},
             "cosine",
             true}),
    [](const auto& test) { return test.param.name; });

using ResumedAlgorithms = testing::TemporaryDirectory;

// Shows that the preferences differ, so that the test above depends on the checkpoint's algorithms.
TEST_F(ResumedAlgorithms, AreTheCheckpointsWhateverIsPreferred) {
  const fs::path path = directory_ / "checkpoint";
  const TrainingOptions training{.optimizer = SgdSpec{}};
  const PlannedRun fast = plan_run(lenet(), run_options(training));
  const PlannedRun small =
      plan_run(lenet(), run_options(training, Policy::kOffloadAll, AlgorithmPreference::kMemory));
  ASSERT_NE(fast.schedule.algorithms, small.schedule.algorithms);
  Session session(fast, {});
  save_checkpoint(path, session);
  EXPECT_EQ(plan_resumed_run(Checkpoint(path), lenet(), small.options).schedule.algorithms,
            fast.schedule.algorithms);
}

// --- one state ---------------------------------------------------------------------------------------------

struct Edited {
  SafetensorsMetadata metadata;
  std::vector<SafetensorsTensor> tensors;
  std::map<std::string, std::vector<std::byte>> data;
};

class CheckpointTest : public testing::TemporaryDirectory {
 protected:
  static PlannedRun tiny_run(Network network = tiny(), const TrainingOptions& training = kTraining) {
    return plan_run(std::move(network), run_options(training));
  }
  fs::path path() const { return directory_ / "checkpoint"; }

  // Parameters and optimizer state with numbers of every kind of bit pattern.
  static TrainingState odd_state(const PlannedRun& run) {
    const std::vector<std::uint32_t> bits{0x7fc12345, 0xffc00001, 0x7f800000, 0xff800000, 0x80000000,
                                          0x00000000, 0x00000001, 0x807fffff, 0x3f800000, 0x7f7fffff};
    TrainingState state = describe_state(*run.tape);
    state.step = 41;
    state.seed = 0xfedcba9876543210;
    std::size_t next = 0;
    for (auto* list : {&state.parameters, &state.optimizer}) {
      for (ParameterValues& values : *list) {
        values.values.resize(element_count(values.dims));
        for (float& value : values.values) {
          value = std::bit_cast<float>(bits[next++ % bits.size()]);
        }
      }
    }
    return state;
  }

  void save_odd_state(const PlannedRun& run = tiny_run()) const {
    Session session(run, {});
    session.restore(odd_state(run));
    save_checkpoint(path(), session, {.allow_nonfinite = true});
  }

  static void expect_same(const TrainingState& a, const TrainingState& b) {
    EXPECT_EQ(a.step, b.step);
    EXPECT_EQ(a.seed, b.seed);
    for (const auto list : {&TrainingState::parameters, &TrainingState::optimizer}) {
      ASSERT_EQ((a.*list).size(), (b.*list).size());
      for (std::size_t i = 0; i < (a.*list).size(); ++i) {
        const ParameterValues& x = (a.*list)[i];
        const ParameterValues& y = (b.*list)[i];
        EXPECT_EQ(x.name, y.name);
        EXPECT_EQ(x.dims, y.dims) << x.name;
        ASSERT_EQ(x.values.size(), y.values.size()) << x.name;
        EXPECT_EQ(std::memcmp(x.values.data(), y.values.data(), x.values.size() * sizeof(float)), 0)
            << x.name;
      }
    }
  }

  // Rewrites the file with a change that the format permits.
  void edit(const std::function<void(Edited&)>& change) const {
    Edited edited;
    {
      const SafetensorsFile file(path());
      edited.metadata = file.metadata();
      edited.tensors = file.tensors();
      for (const SafetensorsTensor& tensor : edited.tensors) {
        std::vector<std::byte>& bytes = edited.data[tensor.name];
        bytes.resize(tensor.bytes());
        file.read(tensor.name, bytes);
      }
    }
    change(edited);
    SafetensorsWriter writer(path(), edited.tensors, edited.metadata);
    for (const SafetensorsTensor& tensor : edited.tensors) {
      std::vector<std::byte>& bytes = edited.data[tensor.name];
      bytes.resize(tensor.bytes());
      writer.write(bytes);
    }
    writer.commit();
  }
  void edit_metadata(const std::string& key, const std::string& value) const {
    edit([&](Edited& edited) { edited.metadata[key] = value; });
  }

  // Returns the error for a session that the checkpoint does not fit, and checks that the session is
  // unchanged.
  template <class Error>
  std::string rejection(const PlannedRun& run = tiny_run()) const {
    Session session(run, {.seed = 3});
    const TrainingState before = session.state();
    std::string problem = testing::problem<Error>([&] { load_checkpoint(path(), session); });
    expect_same(session.state(), before);
    EXPECT_THAT(problem, HasSubstr(path().string()));
    return problem;
  }

  static inline const TrainingOptions kTraining{.optimizer = AdamSpec{.beta1 = 0.1F, .weight_decay = 0.3F},
                                                .clip_norm = 0.7F};
};

TEST_F(CheckpointTest, BringsBackEveryBit) {
  const PlannedRun run = tiny_run();
  save_odd_state(run);
  Session session(run, {});
  load_checkpoint(path(), session);
  expect_same(session.state(), odd_state(run));
  EXPECT_EQ(session.steps(), 41U);
}

// The Python package orders tensors by name when it rewrites a file. Regression: such a file was reported as
// damaged.
TEST_F(CheckpointTest, TheOrderOfTensorsInTheFileDoesNotMatter) {
  const PlannedRun run = tiny_run();
  save_odd_state(run);
  edit([](Edited& edited) { std::ranges::reverse(edited.tensors); });
  ASSERT_EQ(SafetensorsFile(path()).tensors().front().name, "fc.bias.second_moment");
  expect_same(Checkpoint(path()).state(run), odd_state(run));
}

TEST_F(CheckpointTest, SaysWhatItIs) {
  save_odd_state();
  const Checkpoint checkpoint(path());
  const CheckpointInfo& info = checkpoint.info();
  EXPECT_EQ(info.model, "tiny");
  EXPECT_EQ(info.batch, 2);
  EXPECT_EQ(info.global_batch, 2U);
  EXPECT_EQ(info.step, 41U);
  EXPECT_EQ(info.seed, 0xfedcba9876543210);
  EXPECT_EQ(info.device, "cpu");
  EXPECT_EQ(info.threads, 1);
  EXPECT_THAT(info.algorithms_source, HasSubstr("onednn"));
  EXPECT_EQ(std::get<AdamSpec>(info.optimizer).beta1, 0.1F);
  EXPECT_EQ(std::get<AdamSpec>(info.optimizer).weight_decay, 0.3F);
  EXPECT_EQ(info.clip_norm, 0.7F);
  const PlannedRun run = tiny_run();
  EXPECT_EQ(info.algorithms.size(), run.tape->ops().size());
  for (const Op& op : run.tape->ops()) {
    EXPECT_TRUE(info.algorithms.contains(op.name)) << op.name;
  }
}

TEST_F(CheckpointTest, IsASafetensorsFileOfTensorsAsTheyLie) {
  save_odd_state(tiny_run(tiny(), {.optimizer = SgdSpec{.momentum = 0.9F}}));
  const SafetensorsFile file(path());
  std::vector<std::string> names;
  for (const SafetensorsTensor& tensor : file.tensors()) {
    names.push_back(tensor.name);
  }
  EXPECT_THAT(names,
              ElementsAre("conv1.filter", "conv1.bias", "fc.filter", "fc.bias", "conv1.filter.momentum",
                          "conv1.bias.momentum", "fc.filter.momentum", "fc.bias.momentum"));
  EXPECT_EQ(file.find("conv1.filter")->dims, (Dims{3, 3, 3, 2})) << "K, R, S, C";
  EXPECT_EQ(file.metadata().at("format"), "vdnn-checkpoint");
  EXPECT_EQ(file.metadata().at("optimizer"), R"({"kind":"sgd","momentum":0.9,"weight_decay":0.0})");
  EXPECT_EQ(file.metadata().at("clip_norm"), "null");
}

// The public package returns the same names, shapes and bits as NumPy arrays. Training continues from the
// file that Python then writes.
TEST_F(CheckpointTest, PythonReadsTheSameNumbersAndWritesACheckpoint) {
  const std::string python = "'" VDNN_TEST_PYTHON "' ";
  if (testing::run_process(python + "-c 'import safetensors, numpy'").status != 0) {
    GTEST_SKIP() << VDNN_TEST_PYTHON " has no safetensors and NumPy: scripts/setup --dev installs them";
  }
  const PlannedRun run = tiny_run();
  save_odd_state(run);
  const std::string copy = path().string() + ".copy";
  const testing::Outcome read =
      testing::run_process(python + "'" VDNN_SAFETENSORS_CHECK "' '" + path().string() + "' '" + copy + "'");
  ASSERT_EQ(read.status, 0) << read.text;
  const TrainingState state = odd_state(run);
  for (const auto* all : {&state.parameters, &state.optimizer}) {
    for (const ParameterValues& one : *all) {
      std::string shape = "[";
      for (const std::int64_t dim : one.dims) {
        shape += (shape.size() > 1 ? "," : "") + std::to_string(dim);
      }
      Sha256 hash;
      hash.update(std::as_bytes(std::span(one.values)));
      EXPECT_THAT(read.text,
                  HasSubstr("tensor \"" + one.name + "\" float32 " + shape + "] " + hash.hex_digest()));
    }
  }
  expect_same(Checkpoint(copy).state(run), state);
}

TEST_F(CheckpointTest, StaysOpenWhenAnotherTakesItsPlace) {
  const PlannedRun run = tiny_run();
  save_odd_state(run);
  const Checkpoint checkpoint(path());
  Session other(run, {.seed = 9});
  save_checkpoint(path(), other);
  expect_same(checkpoint.state(run), odd_state(run));
}

// A limit on the size of files acts like a full disk.
TEST_F(CheckpointTest, AFailureToWriteLeavesThePreviousOne) {
  const PlannedRun run = tiny_run();
  save_odd_state(run);
  Session other(run, {.seed = 9});
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t bytes : {10, 4000, 5000}) {
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    EXPECT_THROW(save_checkpoint(path(), other), DataError) << bytes;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    expect_same(Checkpoint(path()).state(run), odd_state(run));
    EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1) << bytes;
  }
  std::signal(SIGXFSZ, handler);
}

TEST_F(CheckpointTest, CannotBeWrittenNowhere) {
  Session session(tiny_run(), {});
  EXPECT_THROW(save_checkpoint(directory_ / "missing" / "checkpoint", session), DataError);
}

// --- files that are no checkpoints -------------------------------------------------------------------------

TEST_F(CheckpointTest, OtherFilesAreRefused) {
  EXPECT_THAT(rejection<DataError>(), HasSubstr("No such file"));
  write("checkpoint", "this is something else entirely");
  EXPECT_THAT(rejection<DataError>(), HasSubstr("safetensors"));
  SafetensorsWriter(path(), {}, {{"format", "pt"}}).commit();
  EXPECT_THAT(rejection<DataError>(), AllOf(HasSubstr("vdnn-checkpoint"), HasSubstr("\"pt\"")));
  SafetensorsWriter(path(), {}, {}).commit();
  EXPECT_THAT(rejection<DataError>(), HasSubstr("'format'"));
}

TEST_F(CheckpointTest, TruncatedAnywhereIsRefused) {
  save_odd_state();
  const std::string whole = read("checkpoint");
  for (std::size_t bytes = 0; bytes < whole.size(); bytes += 97) {
    write("checkpoint", whole.substr(0, bytes));
    SCOPED_TRACE(bytes);
    EXPECT_THAT(rejection<DataError>(), HasSubstr("not a valid safetensors file"));
  }
}

TEST_F(CheckpointTest, ALyingHeaderIsRefused) {
  save_odd_state();
  const std::string whole = read("checkpoint");
  std::string longer = whole;
  longer[5] = '\x7f';
  write("checkpoint", longer);
  EXPECT_THAT(rejection<DataError>(), HasSubstr("length"));
  std::string another_place = whole;
  another_place.replace(another_place.find("\"data_offsets\":[0,") + 16, 1, "8");
  write("checkpoint", another_place);
  EXPECT_THAT(rejection<DataError>(), HasSubstr("data_offsets"));
}

TEST_F(CheckpointTest, EveryBitOfTheDataCounts) {
  save_odd_state();
  const std::string whole = read("checkpoint");
  for (const std::size_t from_the_end : {1, 4, 300}) {
    std::string flipped = whole;
    flipped[flipped.size() - from_the_end] ^= 1;
    write("checkpoint", flipped);
    EXPECT_THAT(rejection<DataError>(),
                AllOf(HasSubstr("SHA-256"), HasSubstr("expected"), HasSubstr("found")));
  }
}

TEST_F(CheckpointTest, AnotherVersionIsRefused) {
  save_odd_state();
  edit_metadata("version", "4");
  EXPECT_THAT(rejection<DataError>(), AllOf(HasSubstr("version: expected 1, 2 or 3"), HasSubstr("\"4\"")));
}

TEST_F(CheckpointTest, NoMetadataMayBeMissingOrUnknown) {
  save_odd_state();
  const std::string whole = read("checkpoint");
  const SafetensorsMetadata metadata = SafetensorsFile(path()).metadata();
  for (const auto& [key, value] : metadata) {
    write("checkpoint", whole);
    edit([&, name = key](Edited& edited) { edited.metadata.erase(name); });
    EXPECT_THAT(rejection<DataError>(), HasSubstr("'" + key + "'"));
  }
  write("checkpoint", whole);
  edit_metadata("colour", "red");
  EXPECT_THAT(rejection<DataError>(), HasSubstr("colour"));
}

// A checkpoint of another precision is accepted. Its recorded algorithms do not apply, since the tape has
// other ops.
TEST_F(CheckpointTest, GoesOnInAnotherPrecision) {
  TrainingOptions narrow = kTraining;
  narrow.precision = {.storage = DataType::kBf16, .fp32_layers = {"fc"}};
  {
    Session session(tiny_run(tiny(), narrow), {.seed = 3});
    save_checkpoint(path(), session);
  }
  const Checkpoint checkpoint(path());
  EXPECT_EQ(checkpoint.info().precision, narrow.precision);
  for (const TrainingOptions& training : {kTraining, narrow}) {
    const PlannedRun run = plan_resumed_run(checkpoint, tiny(), run_options(training));
    Session session(run, {});
    session.restore(checkpoint.state(run));
    EXPECT_EQ(session.weights_sha256(), Session(tiny_run(tiny(), narrow), {.seed = 3}).weights_sha256());
    EXPECT_EQ(run.options.recorded_algorithms.empty(), training.precision != narrow.precision);
  }
}

TEST_F(CheckpointTest, FilesWithoutAPrecisionAreOfFp32) {
  const PlannedRun run = tiny_run();
  save_odd_state(run);
  edit([](Edited& edited) {
    edited.metadata.erase("precision");
    edited.metadata.erase("fp32_layers");
    edited.metadata.erase("loss_scale");
    edited.metadata["version"] = "2";
  });
  const Checkpoint checkpoint(path());
  EXPECT_EQ(checkpoint.info().precision, PrecisionOptions{});
  EXPECT_EQ(plan_resumed_run(checkpoint, tiny(), run_options(kTraining)).options.recorded_algorithms,
            checkpoint.info().algorithms);
  expect_same(checkpoint.state(run), odd_state(run));
}

TEST_F(CheckpointTest, TheFirstVersionWithoutAGlobalBatchIsGoneOnFrom) {
  const PlannedRun run = tiny_run();
  save_odd_state(run);
  edit([](Edited& edited) {
    for (const char* const key : {"global_batch", "precision", "fp32_layers", "loss_scale"}) {
      edited.metadata.erase(key);
    }
    edited.metadata["version"] = "1";
  });
  const Checkpoint checkpoint(path());
  EXPECT_EQ(checkpoint.info().global_batch, std::nullopt);
  expect_same(checkpoint.state(run), odd_state(run));
}

TEST_F(CheckpointTest, TheGlobalBatchCountsMicroSteps) {
  TrainingOptions training = kTraining;
  training.micro_steps = 3;
  save_odd_state(tiny_run(tiny(), training));
  EXPECT_EQ(Checkpoint(path()).info().batch, 2);
  EXPECT_EQ(Checkpoint(path()).info().global_batch, 6U);
}

TEST_F(CheckpointTest, MetadataOfAnotherFormAreRefused) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> damages{
      {"step", {"", "many", "-1", "4.5", "12 ", "0x10", "99999999999999999999"}},
      {"seed", {"", "none"}},
      {"batch", {"big", "-2"}},
      {"global_batch", {"", "all", "-2"}},
      {"threads", {"two", "-1"}},
      {"optimizer",
       {"", "adam", "[]", "{}", R"({"kind":"newton"})", R"({"kind":"sgd","momentum":1})",
        R"({"kind":"sgd","momentum":"a","weight_decay":0})", R"({"kind":["sgd"]})",
        R"({"kind":"sgd","momentum":0.5,"weight_decay":0,"beta1":1})",
        R"({"kind":"sgd","momentum":1e99,"weight_decay":0})"}},
      {"clip_norm", {"", "[1]", "\"1\"", "much"}},
      {"precision", {"", "int32", "fp8"}},
      {"loss_scale",
       {"", "8", R"({"scale":8})", R"({"scale":0,"good_steps":0,"skipped_steps":0})",
        R"({"scale":8,"good_steps":-1,"skipped_steps":0})",
        R"({"scale":"8","good_steps":0,"skipped_steps":0})"}},
      {"algorithms",
       {"", "{}", "[]", R"({"conv1.forward":1})", R"({"conv1.forward":{"a":"b"}})", "{\"a\":"}}};
  save_odd_state();
  const std::string whole = read("checkpoint");
  for (const auto& [key, values] : damages) {
    for (const std::string& value : values) {
      SCOPED_TRACE(std::string(key).append(" = ").append(value));
      write("checkpoint", whole);
      edit_metadata(key, value);
      EXPECT_THAT(rejection<DataError>(), HasSubstr(key + ": expected"));
    }
  }
}

// Regression: the parser took a zero byte for the end of the text and ignored everything after it.
TEST_F(CheckpointTest, MetadataWithAZeroAreRefused) {
  save_odd_state();
  const std::string whole = read("checkpoint");
  for (const std::string key : {"optimizer", "clip_norm", "algorithms"}) {
    write("checkpoint", whole);
    edit([&](Edited& edited) { edited.metadata[key] += std::string(1, '\0') + "anything"; });
    EXPECT_THAT(rejection<DataError>(), HasSubstr(key + ": expected"));
  }
}

TEST_F(CheckpointTest, TensorsThatAreNotTheNetworksAreNamed) {
  save_odd_state();
  const std::string whole = read("checkpoint");
  edit([](Edited& edited) {
    std::erase_if(edited.tensors, [](const auto& tensor) { return tensor.name == "fc.filter"; });
  });
  EXPECT_THAT(rejection<DataError>(), AllOf(HasSubstr("\"fc.filter\""), HasSubstr("missing")));
  write("checkpoint", whole);
  edit([](Edited& edited) {
    std::erase_if(edited.tensors, [](const auto& tensor) { return tensor.name == "fc.bias.second_moment"; });
  });
  EXPECT_THAT(rejection<DataError>(), AllOf(HasSubstr("\"fc.bias.second_moment\""), HasSubstr("missing")));
  write("checkpoint", whole);
  edit([](Edited& edited) { edited.tensors.push_back({.name = "fc.colour", .dims = {2, 5}}); });
  EXPECT_THAT(rejection<DataError>(), AllOf(HasSubstr("\"fc.colour\" (2x5)"), HasSubstr("not expected")));
  write("checkpoint", whole);
  edit([](Edited& edited) { edited.tensors[1].data_type = DataType::kI32; });
  EXPECT_THAT(rejection<DataError>(),
              AllOf(HasSubstr("\"conv1.bias\""), HasSubstr("expected F32"), HasSubstr("found I32")));
  write("checkpoint", whole);
  edit([](Edited& edited) { edited.tensors.back().dims.push_back(1); });
  EXPECT_THAT(rejection<DataError>(), AllOf(HasSubstr("\"fc.bias.second_moment\""), HasSubstr("4x1")));
}

// --- checkpoints of something else -------------------------------------------------------------------------

TEST_F(CheckpointTest, OfAnotherNetworkIsRefusedWithTheFirstParameterThatDiffers) {
  save_odd_state();
  const std::string wider = rejection<InvalidArgument>(tiny_run(tiny(5, "wide")));
  EXPECT_THAT(wider, AllOf(HasSubstr("'tiny'"), HasSubstr("'wide'"), HasSubstr("\"conv1.filter\" is 3x3x3x2"),
                           HasSubstr("5x3x3x2")));
  EXPECT_THAT(rejection<InvalidArgument>(tiny_run(tiny(5))), HasSubstr("5x3x3x2"))
      << "another tensor has the same name";
  EXPECT_THAT(rejection<InvalidArgument>(tiny_run(tiny(3, "other", "conv7"))),
              HasSubstr("\"conv7.filter\" (3x3x3x2)"));
  EXPECT_THAT(rejection<InvalidArgument>(tiny_run(tiny(3, "twin"))),
              AllOf(HasSubstr("'tiny'"), HasSubstr("'twin'")));
}

TEST_F(CheckpointTest, OfAnotherNetworkIsRefusedWhenItIsPlannedToo) {
  save_odd_state();
  const Checkpoint checkpoint(path());
  const std::string problem = testing::problem<InvalidArgument>(
      [&] { plan_resumed_run(checkpoint, tiny(3, "other", "conv7"), run_options(kTraining)); });
  EXPECT_THAT(problem, AllOf(HasSubstr("'other'"), HasSubstr("conv7.filter")));
}

TEST_F(CheckpointTest, OfAnotherOptimizerIsRefused) {
  save_odd_state();
  const AdamSpec adam = std::get<AdamSpec>(kTraining.optimizer);
  const auto with = [&](const OptimizerSpec& optimizer) {
    return rejection<InvalidArgument>(
        tiny_run(tiny(), {.optimizer = optimizer, .clip_norm = kTraining.clip_norm}));
  };
  EXPECT_THAT(with(SgdSpec{.momentum = 0.9F}), AllOf(HasSubstr("sgd"), HasSubstr("adam")));
  AdamSpec decoupled = adam;
  decoupled.decoupled = true;
  EXPECT_THAT(with(decoupled), HasSubstr("adamw"));
  AdamSpec slower = adam;
  slower.beta2 = 0.9F;
  EXPECT_THAT(with(slower), AllOf(HasSubstr("0.999"), HasSubstr("\"beta2\":0.9,")));
}

TEST_F(CheckpointTest, OfAnotherClippingIsRefused) {
  save_odd_state();
  for (const std::optional<float> clip_norm : {std::optional<float>(), std::optional(0.5F)}) {
    const TrainingOptions training{.optimizer = kTraining.optimizer, .clip_norm = clip_norm};
    EXPECT_THAT(rejection<InvalidArgument>(tiny_run(tiny(), training)), HasSubstr("norm of 0.7"));
    EXPECT_THROW(plan_resumed_run(Checkpoint(path()), tiny(), run_options(training)), InvalidArgument);
  }
}

class RecordedAlgorithms : public CheckpointTest {
 protected:
  std::string planning() const {
    return testing::problem<InvalidArgument>(
        [&] { plan_resumed_run(Checkpoint(path()), tiny(), run_options(kTraining)); });
  }
  // `from` must occur exactly once in the list.
  void replace(const std::string& from, const std::string& to) const {
    std::string text = SafetensorsFile(path()).metadata().at("algorithms");
    ASSERT_NE(text.find(from), std::string::npos) << text;
    edit_metadata("algorithms", text.replace(text.find(from), from.size(), to));
  }
};

TEST_F(RecordedAlgorithms, ThatDoNotExistHereAreNamed) {
  save_odd_state();
  const std::string recorded = Checkpoint(path()).info().algorithms.at("conv1.forward");
  replace("\"conv1.forward\":\"" + recorded, "\"conv1.forward\":\"winograd:abacus");
  EXPECT_THAT(planning(),
              AllOf(HasSubstr("conv1.forward"), HasSubstr("winograd:abacus"), HasSubstr(path().string())));
}

TEST_F(RecordedAlgorithms, OfOtherOpsAreNamed) {
  save_odd_state();
  const std::string whole = read("checkpoint");
  replace("\"conv1.forward\"", "\"conv8.forward\"");
  EXPECT_THAT(planning(), HasSubstr("conv1.forward"));
  write("checkpoint", whole);
  replace("{", "{\"conv8.forward\":\"direct\",");
  EXPECT_THAT(planning(), HasSubstr("conv8.forward"));
}

TEST_F(RecordedAlgorithms, AreNotBlamedForOtherOptions) {
  save_odd_state();
  RunOptions options = run_options(kTraining);
  options.device = "abacus";
  const std::string problem =
      testing::problem<InvalidArgument>([&] { plan_resumed_run(Checkpoint(path()), tiny(), options); });
  EXPECT_THAT(problem, AllOf(HasSubstr("abacus"), Not(HasSubstr("checkpoint"))));
}

// --- through the trainer -----------------------------------------------------------------------------------

TEST_F(CheckpointTest, OfATrainingThatIsOverHasNothingLeftToDo) {
  save_odd_state();
  const PlannedRun run = tiny_run();
  const DatasetSplits data = open_dataset(dataset_options(run.own_network(), "synthetic", 1));
  EXPECT_THAT(testing::problem<InvalidArgument>(
                  [&] { Trainer(run, data, {.steps = 41, .start = Checkpoint(path()).state(run)}); }),
              HasSubstr("at step 41"));
}

}  // namespace
}  // namespace vdnn::checkpoint_test
