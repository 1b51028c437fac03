#include "tests/stash/stash_judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <ostream>
#include <stdexcept>
#include <utility>

#include "allocator/judging_sim.h"
#include "fakes/fake_cuda.h"
#include "src/stash/cuda_stash_backend.h"
#include "tests/stash/failing_stash_backend.h"
#include "vdnn/sim_device.h"

namespace vdnn::testing {

namespace {

constexpr std::uint64_t kArenaBytes = std::uint64_t{4} << 20;

class SimStashJudge final : public StashJudge {
 public:
  SimStashJudge(std::uint64_t seed, bool by_order) : device_(make_device(seed, by_order)) {
    arena_ = device_->reserve(kArenaBytes);
    device_->commit(arena_);
  }

  std::unique_ptr<StashBackend> make_backend() override {
    return std::make_unique<FailingStashBackend>(make_stash_backend(*device_), faults_);
  }
  StreamHandle stream(std::size_t index) const override {
    return stream_handle(static_cast<StreamId>(index));
  }
  AddressRange arena() const override { return arena_; }
  void work(StreamHandle stream, const std::string& name, const std::vector<JudgedAccess>& reads,
            const std::vector<JudgedAccess>& writes) override {
    names_.push_back(std::make_unique<std::string>(name));
    device_->submit(number_of(stream), {.name = *names_.back(),
                                        .reads = accesses_of(reads),
                                        .writes = accesses_of(writes),
                                        .cost = {},
                                        .run = {}});
  }
  void order(StreamHandle later, StreamHandle earlier) override {
    device_->wait(number_of(later), device_->frontier(number_of(earlier)));
  }
  bool is_done(StreamHandle stream) override {
    return device_->reached(device_->frontier(number_of(stream)));
  }
  void fail_call(std::uint64_t nth) override { faults_.fail_at = faults_.calls + nth; }
  std::uint64_t calls() const override { return faults_.calls; }
  std::vector<std::string> finish() override {
    device_->synchronize_all();
    std::vector<std::string> found;
    for (const SimFinding& finding : device_->findings()) {
      found.push_back(finding.text);
    }
    if (device_->counters().pinned_bytes != 0) {
      found.push_back(std::to_string(device_->counters().pinned_bytes) + " bytes are page-locked");
    }
    return found;
  }

 private:
  static std::unique_ptr<SimDevice> make_device(std::uint64_t seed, bool by_order) {
    SimDeviceOptions options;
    options.profile = sim_profile("cpu");
    options.check_versions = true;
    options.check_races = !by_order;
    options.order_seed = by_order ? std::optional(seed) : std::nullopt;
    return make_sim_with_streams(options, kStreams);
  }
  static std::vector<Access> accesses_of(const std::vector<JudgedAccess>& accesses) {
    std::vector<Access> result;
    for (const JudgedAccess& each : accesses) {
      result.push_back({.range = each.range, .version = each.version});
    }
    return result;
  }
  static StreamId number_of(StreamHandle stream) {
    return static_cast<StreamId>(reinterpret_cast<std::uintptr_t>(stream) - 1);
  }

  const std::unique_ptr<SimDevice> device_;
  AddressRange arena_;
  std::vector<std::unique_ptr<std::string>> names_;  // of work that may be in flight
  StashFaults faults_;
};

class CudaStashJudge final : public StashJudge {
 public:
  explicit CudaStashJudge(std::uint64_t seed)
      : cuda_(std::make_shared<FakeCuda>(
            FakeCudaOptions{.seed = seed, .memory_bytes = std::uint64_t{16} << 20})) {
    cuda_->set_device(0);
    for (CudaStream& stream : streams_) {
      cuda_->stream_create(stream);
    }
    arena_.bytes = kArenaBytes;
    cuda_->malloc(arena_.begin, arena_.bytes);
    cuda_->name_copies("a copy of the stash");
  }

  std::unique_ptr<StashBackend> make_backend() override { return make_cuda_stash_backend(0, cuda_); }
  StreamHandle stream(std::size_t index) const override { return streams_.at(index); }
  AddressRange arena() const override { return arena_; }
  void work(StreamHandle stream, const std::string& name, const std::vector<JudgedAccess>& reads,
            const std::vector<JudgedAccess>& writes) override {
    const std::vector<Access> read = ranges_of(reads);
    const std::vector<Access> written = ranges_of(writes);
    const auto kernel = [this, name, reads, writes] {
      std::ranges::for_each(reads, [&](const JudgedAccess& each) { check(name, each); });
      std::ranges::for_each(writes, fill);
    };
    insist(
        [&] { return FakeCuda::launch(stream, kernel, {.name = name, .reads = read, .writes = written}); });
  }
  void order(StreamHandle later, StreamHandle earlier) override {
    CudaEvent event = nullptr;
    insist([&] { return cuda_->event_create(event, {}); });
    insist([&] { return cuda_->event_record(event, earlier); });
    insist([&] { return cuda_->stream_wait_event(later, event); });
    insist([&] { return cuda_->event_destroy(event); });
  }
  bool is_done(StreamHandle stream) override { return cuda_->stream_query(stream) == CudaStatus::kSuccess; }
  void rest() override { cuda_->rest(); }
  void fail_call(std::uint64_t nth) override { cuda_->fail_call(nth, CudaStatus::kInvalidValue); }
  std::uint64_t calls() const override { return cuda_->calls(); }
  std::vector<std::string> finish() override {
    insist([&] { return cuda_->device_synchronize(); });
    insist([&] { return cuda_->free(arena_.begin); });
    for (const CudaStream stream : streams_) {
      insist([&] { return cuda_->stream_destroy(stream); });
    }
    std::vector<std::string> found = std::exchange(wrong_, {});
    for (const SimFinding& finding : cuda_->findings()) {
      found.push_back(finding.text);
    }
    for (const std::vector<std::string>& more : {cuda_->misuses(), cuda_->leaks()}) {
      found.insert(found.end(), more.begin(), more.end());
    }
    return found;
  }

 private:
  // Of the program itself the failure is not what is tested.
  template <class Call>
  static void insist(const Call& call) {
    if (call() != CudaStatus::kSuccess && call() != CudaStatus::kSuccess) {
      throw std::logic_error("a call of the program failed twice");
    }
  }
  static std::vector<Access> ranges_of(const std::vector<JudgedAccess>& accesses) {
    std::vector<Access> result;
    for (const JudgedAccess& each : accesses) {
      result.push_back({.range = each.range});
    }
    return result;
  }
  static void fill(const JudgedAccess& access) {
    std::fill_n(pointer_to<std::uint64_t>(access.range.begin), access.range.bytes / sizeof(std::uint64_t),
                access.version);
  }
  void check(const std::string& name, const JudgedAccess& access) {
    const auto* const words = pointer_to<const std::uint64_t>(access.range.begin);
    const auto as_expected = [&](std::uint64_t word) { return word == access.version; };
    if (!std::all_of(words, words + access.range.bytes / sizeof(std::uint64_t), as_expected)) {
      wrong_.push_back(name + " read other contents than " + std::to_string(access.version));
    }
  }

  const std::shared_ptr<FakeCuda> cuda_;
  std::array<CudaStream, kStreams> streams_{};
  AddressRange arena_;
  std::vector<std::string> wrong_;
};

}  // namespace

std::ostream& operator<<(std::ostream& out, JudgeKind kind) {
  return out << (kind == JudgeKind::kSim ? "sim" : "cuda");
}

std::unique_ptr<StashJudge> make_stash_judge(JudgeKind kind, std::uint64_t seed, bool by_order) {
  if (kind == JudgeKind::kSim) {
    return std::make_unique<SimStashJudge>(seed, by_order);
  }
  return std::make_unique<CudaStashJudge>(seed);
}

}  // namespace vdnn::testing
