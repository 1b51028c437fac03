#include "tests/stash/stash_judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <ostream>
#include <stdexcept>
#include <utility>

#include "src/stash/cuda_stash_backend.h"
#include "tests/allocator/judging_sim.h"
#include "tests/fakes/fake_cuda.h"
#include "vdnn/cpu_device.h"
#include "vdnn/sim_device.h"

namespace vdnn::testing {

namespace {

constexpr std::uint64_t kArenaBytes = std::uint64_t{4} << 20;

std::vector<Access> accesses_of(const std::vector<JudgedAccess>& accesses) {
  std::vector<Access> result;
  result.reserve(accesses.size());
  for (const JudgedAccess& each : accesses) {
    result.push_back({.range = each.range, .version = each.version});
  }
  return result;
}

// Work on real bytes: fills written ranges with words that identify their contents, and reports wrong words
// in read ranges.
class Words {
 public:
  static void fill(const std::vector<JudgedAccess>& writes) {
    for (const JudgedAccess& each : writes) {
      std::fill_n(pointer_to<std::uint64_t>(each.range.begin), words_of(each.range), each.version);
    }
  }
  void check(const std::string& name, const std::vector<JudgedAccess>& reads) {
    for (const JudgedAccess& each : reads) {
      const auto* const words = pointer_to<const std::uint64_t>(each.range.begin);
      const auto is_expected = [&](std::uint64_t word) { return word == each.version; };
      if (!std::all_of(words, words + words_of(each.range), is_expected)) {
        const std::lock_guard lock(mutex_);
        wrong_.push_back(name + " read other contents than " + std::to_string(each.version));
      }
    }
  }
  std::vector<std::string> take_wrong() { return std::exchange(wrong_, {}); }

 private:
  static std::uint64_t words_of(AddressRange range) { return range.bytes / sizeof(std::uint64_t); }

  std::mutex mutex_;
  std::vector<std::string> wrong_;
};

// Judges with the streams of a Device. Injected failures hit calls of the stash's backend.
class DeviceStashJudge : public StashJudge {
 public:
  std::unique_ptr<StashBackend> make_backend() override {
    return std::make_unique<FailingStashBackend>(make_stash_backend(device_), faults_);
  }
  StreamHandle stream(std::size_t index) const override {
    return stream_handle(static_cast<StreamId>(index));
  }
  AddressRange arena() const override { return arena_; }
  void work(StreamHandle stream, const std::string& name, const std::vector<JudgedAccess>& reads,
            const std::vector<JudgedAccess>& writes) override {
    names_.push_back(std::make_unique<std::string>(name));
    const auto run = [this, name, reads, writes](void*) {
      words_.check(name, reads);
      Words::fill(writes);
    };
    device_.submit(number_of(stream), {.name = *names_.back(),
                                       .reads = accesses_of(reads),
                                       .writes = accesses_of(writes),
                                       .cost = {},
                                       .run = run});
  }
  void order(StreamHandle later, StreamHandle earlier) override {
    device_.wait(number_of(later), device_.frontier(number_of(earlier)));
  }
  bool is_done(StreamHandle stream) override { return device_.reached(device_.frontier(number_of(stream))); }
  void fail_call(std::uint64_t nth, const CallFailure& failure) override {
    faults_.failure = failure;
    faults_.fail_at = faults_.count(failure.call) + nth;
  }
  std::string failed_call() const override { return faults_.failed; }
  std::uint64_t calls(std::string_view name) const override { return faults_.count(name); }
  std::span<const std::string_view> calls_that_need_memory() const override {
    static constexpr std::string_view kCalls[] = {"allocate_host"};
    return kCalls;
  }
  std::vector<std::string> finish() override {
    device_.synchronize_all();
    std::vector<std::string> found = words_.take_wrong();
    if (device_.counters().pinned_bytes != 0) {
      found.push_back(std::to_string(device_.counters().pinned_bytes) + " bytes are page-locked");
    }
    return found;
  }

 protected:
  explicit DeviceStashJudge(Device& device) : device_(device), arena_(device.reserve(kArenaBytes)) {
    device.commit(arena_);
  }

 private:
  static StreamId number_of(StreamHandle stream) {
    return static_cast<StreamId>(reinterpret_cast<std::uintptr_t>(stream) - 1);
  }

  Device& device_;
  const AddressRange arena_;
  std::vector<std::unique_ptr<std::string>> names_;  // names of work that may be in flight
  Words words_;
  StashFaults faults_;
};

template <class DeviceType>
struct OwnDevice {
  std::unique_ptr<DeviceType> owned;
};

// `sim` runs no work: it checks declared accesses.
class SimStashJudge final : private OwnDevice<SimDevice>, public DeviceStashJudge {
 public:
  SimStashJudge(std::uint64_t seed, bool by_order)
      : OwnDevice{make_device(seed, by_order)}, DeviceStashJudge(*owned) {}

  std::vector<std::string> finish() override {
    std::vector<std::string> found = DeviceStashJudge::finish();
    for (const SimFinding& finding : owned->findings()) {
      found.push_back(finding.text);
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
};

class CpuStashJudge final : private OwnDevice<Device>, public DeviceStashJudge {
 public:
  explicit CpuStashJudge(std::uint64_t seed) : OwnDevice{make_device(seed)}, DeviceStashJudge(*owned) {}

 private:
  static std::unique_ptr<Device> make_device(std::uint64_t seed) {
    CpuDeviceOptions options;
    options.budget_bytes = 2 * kArenaBytes;
    options.delay_seed = seed;
    auto device = make_cpu_device(options);
    for (std::size_t i = 0; i < kStreams; ++i) {
      device->create_stream("stream " + std::to_string(i));
    }
    return device;
  }
};

class CudaStashJudge final : public StashJudge {
 public:
  // For every second seed, copies are timed.
  explicit CudaStashJudge(std::uint64_t seed)
      : timed_(seed % 2 == 1),
        cuda_(std::make_shared<FakeCuda>(
            FakeCudaOptions{.seed = seed, .memory_bytes = std::uint64_t{16} << 20})) {
    cuda_->set_device(0);
    for (CudaStream& stream : streams_) {
      cuda_->stream_create(stream);
    }
    arena_.bytes = kArenaBytes;
    cuda_->malloc(arena_.begin, arena_.bytes);
    cuda_->name_copies("a copy of the stash");
  }

  std::unique_ptr<StashBackend> make_backend() override { return make_cuda_stash_backend(0, timed_, cuda_); }
  StreamHandle stream(std::size_t index) const override { return streams_.at(index); }
  AddressRange arena() const override { return arena_; }
  void work(StreamHandle stream, const std::string& name, const std::vector<JudgedAccess>& reads,
            const std::vector<JudgedAccess>& writes) override {
    const std::vector<Access> read = accesses_of(reads);
    const std::vector<Access> written = accesses_of(writes);
    const auto kernel = [this, name, reads, writes] {
      words_.check(name, reads);
      Words::fill(writes);
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
  void fail_call(std::uint64_t nth, const CallFailure& failure) override {
    cuda_->fail_call(nth,
                     failure.is_lack_of_memory ? CudaStatus::kMemoryAllocation : CudaStatus::kInvalidValue,
                     failure.call);
  }
  std::string failed_call() const override { return cuda_->failed_call(); }
  std::uint64_t calls(std::string_view name) const override { return cuda_->calls(name); }
  // The first two list cudaErrorMemoryAllocation among their results (CUDA Runtime API). The third one is
  // cuStreamCreate, which lists CUDA_ERROR_OUT_OF_MEMORY (CUDA Driver API).
  std::span<const std::string_view> calls_that_need_memory() const override {
    static constexpr std::string_view kCalls[] = {"cudaHostRegister", "cudaEventCreateWithFlags",
                                                  "cudaStreamCreateWithFlags"};
    return kCalls;
  }
  std::vector<std::string> finish() override {
    insist([&] { return cuda_->device_synchronize(); });
    insist([&] { return cuda_->free(arena_.begin); });
    for (const CudaStream stream : streams_) {
      insist([&] { return cuda_->stream_destroy(stream); });
    }
    std::vector<std::string> found = words_.take_wrong();
    for (const SimFinding& finding : cuda_->findings()) {
      found.push_back(finding.text);
    }
    for (const std::vector<std::string>& more : {cuda_->misuses(), cuda_->leaks()}) {
      found.insert(found.end(), more.begin(), more.end());
    }
    // leaks() leaves out a block if a call that should have unlocked it failed, even if no call did so later.
    if (const std::uint64_t locked = successes("cudaHostRegister") - successes("cudaHostUnregister");
        locked != 0) {
      found.push_back("page-locked blocks: " + std::to_string(locked));
    }
    return found;
  }

 private:
  // The number of calls of this name that did not fail, if fail_call() was called at most once.
  std::uint64_t successes(std::string_view name) const {
    return cuda_->calls(name) - (cuda_->failed_call() == name ? 1 : 0);
  }
  // The tests do not cover failures of the program's own calls, so a failed call is repeated.
  template <class Call>
  static void insist(const Call& call) {
    CudaStatus status = call();
    if (status != CudaStatus::kSuccess) {
      status = call();
    }
    if (status != CudaStatus::kSuccess) {
      throw std::logic_error("a call of the program failed twice");
    }
  }

  const bool timed_;
  const std::shared_ptr<FakeCuda> cuda_;
  std::array<CudaStream, kStreams> streams_{};
  AddressRange arena_;
  Words words_;
};

}  // namespace

std::ostream& operator<<(std::ostream& out, JudgeKind kind) {
  switch (kind) {
    case JudgeKind::kSim:
      return out << "sim";
    case JudgeKind::kCuda:
      return out << "cuda";
    case JudgeKind::kCpu:
      return out << "cpu";
  }
  return out;
}

std::unique_ptr<StashJudge> make_stash_judge(JudgeKind kind, std::uint64_t seed, bool by_order) {
  switch (kind) {
    case JudgeKind::kSim:
      return std::make_unique<SimStashJudge>(seed, by_order);
    case JudgeKind::kCuda:
      return std::make_unique<CudaStashJudge>(seed);
    case JudgeKind::kCpu:
      return std::make_unique<CpuStashJudge>(seed);
  }
  throw std::logic_error("no such judge");
}

}  // namespace vdnn::testing
