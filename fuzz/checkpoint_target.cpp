// Checkpoints (src/train/checkpoint.cpp): if a session restores an accepted state and saves it again, the
// state is equal.

#include <algorithm>
#include <filesystem>

#include "fuzz/scratch.h"
#include "fuzz/target.h"
#include "vdnn/checkpoint.h"
#include "vdnn/error.h"
#include "vdnn/network.h"
#include "vdnn/sha256.h"

namespace vdnn::fuzz {

namespace {

namespace fs = std::filesystem;

Network network() {
  NetworkBuilder net("tiny", {1, 1, 4, 4});
  const Tensor x = net.convolution("conv1", net.input(),
                                   {.filters = 1, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
  net.softmax_cross_entropy("loss", net.fully_connected("fc", x, {.outputs = 2}));
  return std::move(net).build();
}

RunOptions options_with(const TrainingOptions& training) {
  return {.device = "cpu",
          .memory_bytes = std::uint64_t{64} << 20,
          .host_memory_bytes = std::uint64_t{64} << 20,
          .threads = 1,
          .policy = Policy::kOffloadNone,
          .training = training};
}

// Options of training runs that can resume from the fuzzed state.
const std::vector<TrainingOptions>& trainings() {
  static const std::vector<TrainingOptions> kTrainings{
      {.optimizer = SgdSpec{.momentum = 0.9F}},
      {.optimizer = AdamSpec{.decoupled = true}, .clip_norm = 1.0F}};
  return kTrainings;
}

bool same(const std::vector<ParameterValues>& a, const std::vector<ParameterValues>& b) {
  const auto bytes = [](const ParameterValues& values) { return std::as_bytes(std::span(values.values)); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const ParameterValues& x, const ParameterValues& y) {
                      return x.name == y.name && x.dims == y.dims && std::ranges::equal(bytes(x), bytes(y));
                    });
}

bool same(const TrainingState& a, const TrainingState& b) {
  return a.step == b.step && a.seed == b.seed && same(a.parameters, b.parameters) &&
         same(a.optimizer, b.optimizer);
}

// Requires that a session that has restored a state saves the same state.
void check_resumed(const PlannedRun& run, const TrainingState& state) {
  Session session(run);
  session.restore(state);
  const fs::path path = scratch().directory() / "again";
  save_checkpoint(path, session, {.allow_nonfinite = true});
  const Checkpoint back(path);
  require(same(back.state(run), state), "a state comes back after it was saved");
  require(back.info().step == state.step && back.info().seed == state.seed,
          "a checkpoint contains its state");
}

bool resume(const Checkpoint& checkpoint, const TrainingOptions& training) {
  const auto run = attempt<InvalidArgument>(
      [&] { return plan_resumed_run(checkpoint, network(), options_with(training)); });
  if (!run) {
    return false;
  }
  const auto state = attempt<DataError>([&] { return checkpoint.state(*run); });
  if (state) {
    check_resumed(*run, *state);
  }
  return state.has_value();
}

// Corrects the checksum, so that fuzzing reaches the code after the check. Leaves the file unchanged unless
// it is a safetensors file with the tensors of one of the runs.
bool mend_checksum(const fs::path& path) {
  const auto file = attempt<DataError>([&] { return SafetensorsFile(path); });
  if (!file || !file->metadata().contains("sha256")) {
    return false;
  }
  Sha256 digest;
  std::vector<std::vector<std::byte>> data;
  for (const SafetensorsTensor& tensor : file->tensors()) {
    data.emplace_back(tensor.bytes());
    file->read(tensor.name, data.back());
    digest.update(data.back());
  }
  SafetensorsMetadata metadata = file->metadata();
  metadata["sha256"] = digest.hex_digest();
  SafetensorsWriter writer(path, file->tensors(), metadata);
  for (const auto& bytes : data) {
    writer.write(bytes);
  }
  writer.commit();
  return true;
}

bool run_file(const fs::path& path) {
  const auto checkpoint = attempt<DataError>([&] { return Checkpoint(path); });
  return checkpoint && std::ranges::any_of(trainings(), [&](const TrainingOptions& training) {
           return resume(*checkpoint, training);
         });
}

}  // namespace

bool run_checkpoint(Input input) {
  const fs::path path = scratch().write("input", input);
  const bool accepted = run_file(path);
  return accepted || (mend_checksum(path) && run_file(path));
}

std::vector<Seed> checkpoint_seeds() {
  std::vector<Seed> seeds;
  for (const TrainingOptions& training : trainings()) {
    Session session(plan_run(network(), options_with(training)));
    const fs::path path = scratch().directory() / "seed";
    save_checkpoint(path, session);
    seeds.push_back({.name = training.clip_norm ? "adamw-clipped" : "sgd", .bytes = read_bytes(path)});
  }
  return seeds;
}

}  // namespace vdnn::fuzz
