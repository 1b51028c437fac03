#include "src/ops/cuda/engine_trials.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "src/base/random.h"
#include "src/ops/cuda/sampled_convolution.h"
#include "src/tape/narrow_values.h"
#include "vdnn/size.h"

namespace vdnn::cuda {

namespace {

constexpr std::uint64_t kAlignment = 256;
// Period of the operands' values. It is prime, so that no stride of a tensor repeats them.
constexpr std::uint64_t kPeriod = 1'048'573;
constexpr std::uint64_t kSeed = 20160317;
constexpr std::size_t kSamples = 64;
// The largest number of products that the samples of one trial may need together, which bounds the host's
// work. At least one element, a corner of the result, is always sampled.
constexpr std::uint64_t kMostProducts = std::uint64_t{1} << 25U;

constexpr double kDeviations = 8;
constexpr double kPlainRoundoffs = 16;
constexpr double kTransformedRoundoffs = 64;
constexpr double kFp32Roundoff = 0x1p-24;
constexpr double kTf32Roundoff = 0x1p-11;
constexpr double kFp16Roundoff = 0x1p-11;
constexpr double kBf16Roundoff = 0x1p-8;

// All bits set: a NaN in every type.
constexpr std::byte kPartOfNan{0xFF};

std::vector<float> random_values(std::uint64_t count) {
  SplitMix64 random(kSeed);
  std::vector<float> values(count);
  std::ranges::generate(values, [&] { return random.symmetric(); });
  return values;
}

// Reserved device memory, from which take() cuts aligned blocks one after another; freed with this object.
class DeviceBlock {
 public:
  DeviceBlock(Device& device, std::uint64_t bytes)
      : device_(device), range_(device.reserve(round_up(bytes, device.properties().granule_bytes))) {
    try {
      device_.commit(range_);
    } catch (...) {
      device_.unreserve(range_);
      throw;
    }
  }
  ~DeviceBlock() {
    try {
      device_.decommit(range_);
      device_.unreserve(range_);
    } catch (const Error&) {
      // Memory of a lost device need not be freed. The cause has already been thrown.
    }
  }
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;

  AddressRange take(std::uint64_t bytes) {
    const AddressRange taken{.begin = range_.begin + taken_, .bytes = bytes};
    taken_ += round_up(bytes, kAlignment);
    return taken;
  }

 private:
  Device& device_;
  AddressRange range_;
  std::uint64_t taken_ = 0;
};

// Page-locked memory, freed with this object.
class HostBlock {
 public:
  HostBlock(Device& device, std::uint64_t bytes) : device_(device), range_(device.allocate_pinned(bytes)) {}
  ~HostBlock() {
    try {
      device_.free_pinned(range_);
    } catch (const Error&) {
      // Memory of a lost device need not be freed.
    }
  }
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;

  const AddressRange& range() const { return range_; }
  std::span<std::byte> bytes() const { return {pointer_to<std::byte>(range_.begin), range_.bytes}; }

 private:
  Device& device_;
  AddressRange range_;
};

// The repeated values of operands, as bytes of the operands' type and as numbers.
struct TrialValues {
  std::vector<std::byte> stored;
  std::vector<float> numbers;

  TrialValues(DataType elements, std::vector<float> drawn) {
    const auto bytes = std::as_writable_bytes(std::span(drawn));
    if (is_narrow(elements)) {
      narrow_in_place(elements, bytes.data(), drawn.size());
    }
    stored.assign(bytes.begin(),
                  bytes.begin() + static_cast<std::ptrdiff_t>(drawn.size() * size_of(elements)));
    numbers = widened(elements, stored);
  }
};

// An engine that is slower than the best engine by this factor is not run again.
constexpr double kTooSlow = 3;

// How the next engine is timed.
struct TimingPlan {
  int runs = 1;
  double best_seconds = std::numeric_limits<double>::infinity();  // the best time of the engines so far
  const std::function<bool()>& go_on;

  bool is_worth_more_runs(double seconds) const { return seconds < kTooSlow * best_seconds && go_on(); }
};

// The operands of one question on a device, and the expected results.
class Bench {
 public:
  Bench(Device& device, VendorLibrary& library, const EngineQuestion& question, const TrialValues& values)
      : device_(device),
        library_(library),
        question_(question),
        tensors_(tensors_of(question)),
        values_(values),
        operand_bytes_(padded_bytes(tensors_.first) + padded_bytes(tensors_.second) +
                       padded_bytes(tensors_.result)),
        stream_(device.create_stream("trials")),
        staging_(device, values.stored.size()) {
    if (operand_bytes_ > budget()) {
      throw OutOfMemory("operands of a trial of " + to_string(question),
                        {.asked = operand_bytes_, .budget = budget(), .would_have_fitted = budget()});
    }
    compute_samples();
    sampled_.emplace(device, samples_.size() * element_bytes());
  }

  // After a failure, waits for work that may still use the memory.
  ~Bench() {
    try {
      device_.synchronize_all();
    } catch (const Error&) {
      // The cause has been reported already.
    }
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  bool fits(const Engine& engine) const { return engine.workspace_bytes <= workspace_room(); }

  // Reserves the workspace; `workspace_bytes` must fit. Call it once, before engines run.
  void allocate(std::uint64_t workspace_bytes) {
    block_.emplace(device_, operand_bytes_ + workspace_bytes);
    first_ = block_->take(bytes_of(tensors_.first));
    second_ = block_->take(bytes_of(tensors_.second));
    result_ = block_->take(bytes_of(tensors_.result));
    workspace_ = block_->take(workspace_bytes);
    std::ranges::copy(values_.stored, staging_.bytes().begin());
    upload(first_, 0);
    upload(second_, second_phase());
    std::ranges::fill(staging_.bytes(), kPartOfNan);
    begin_timing();
  }

  // Times the engine if there is a plan.
  EngineTrial run(const Engine& engine, const TimingPlan* plan) {
    const std::unique_ptr<VendorOp> op = library_.convolution(question_, engine.name);
    if (op->workspace_bytes() > workspace_.bytes) {
      return {.failure = "it needs " + format_size(op->workspace_bytes()) +
                         " of workspace on this device, but " + format_size(engine.workspace_bytes) +
                         " were listed"};
    }
    // NaNs reveal elements that the engine does not write, and elements that it reads before it writes them.
    upload(result_, 0);
    upload({.begin = workspace_.begin, .bytes = op->workspace_bytes()}, 0);
    // CUDA loads an engine's kernels in the first run, so the time of that run is not representative.
    const std::optional<double> second_run = plan == nullptr ? run_once(*op) : seconds_of(*op, 1);
    EngineTrial trial{
        .worst_error = worst_error(),
        .tolerance = trial_tolerance(engine, question_.elements, longest_sum(question_), rms_product_)};
    if (plan != nullptr && trial.right()) {
      trial.seconds = plan->is_worth_more_runs(*second_run) ? seconds_of(*op, plan->runs) : *second_run;
    }
    return trial;
  }

 private:
  std::uint64_t element_bytes() const { return size_of(question_.elements); }
  std::uint64_t bytes_of(const Dims& dims) const {
    return checked_multiply(element_count(dims), element_bytes());
  }
  std::uint64_t padded_bytes(const Dims& dims) const { return round_up(bytes_of(dims), kAlignment); }
  // The second operand begins at another value, so that the operands differ.
  std::uint64_t second_phase() const { return values_.numbers.size() / 2; }
  std::uint64_t budget() const { return device_.properties().budget_bytes; }
  std::uint64_t workspace_room() const { return budget() - operand_bytes_; }

  void compute_samples() {
    const std::uint64_t affordable =
        std::clamp<std::uint64_t>(kMostProducts / longest_sum(question_), 1, kSamples);
    double squares = 0;
    std::uint64_t products = 0;
    for (const std::uint64_t element : sampled_elements(tensors_.result, affordable, kSeed)) {
      samples_.push_back(sample_convolution(question_, element, {.values = values_.numbers},
                                            {.values = values_.numbers, .phase = second_phase()}));
      squares += samples_.back().squares;
      products += samples_.back().products;
    }
    rms_product_ = products == 0 ? 0 : std::sqrt(squares / static_cast<double>(products));
  }

  void synchronize() { device_.synchronize(device_.frontier(stream_)); }

  void copy(CopyDirection direction, AddressRange destination, AddressRange source) {
    device_.copy(stream_, {.name = "trial",
                           .direction = direction,
                           .destination = {.range = destination},
                           .source = {.range = source}});
  }

  // Element i of `to` becomes the staged value (i + phase) mod the number of values.
  void upload(AddressRange to, std::uint64_t phase) {
    const std::uint64_t period = staging_.bytes().size();
    std::uint64_t from = phase * element_bytes();
    while (to.bytes > 0) {
      const std::uint64_t bytes = std::min(to.bytes, period - from);
      copy(CopyDirection::kHostToDevice, {.begin = to.begin, .bytes = bytes},
           {.begin = staging_.range().begin + from, .bytes = bytes});
      to = {.begin = to.begin + bytes, .bytes = to.bytes - bytes};
      from = 0;
    }
    synchronize();
  }

  std::optional<double> run_once(const VendorOp& op) {
    launch(op, 1);
    synchronize();
    return std::nullopt;
  }

  // Submits all runs in one submission.
  void launch(const VendorOp& op, int runs) {
    const std::array reads{first_, second_};
    const std::array read{Access{.range = first_}, Access{.range = second_}};
    const std::array written{Access{.range = result_}, Access{.range = workspace_}};
    const auto run = [&](void* native_stream) {
      for (int i = 0; i < runs; ++i) {
        op.run({.reads = reads,
                .write = result_,
                .workspace = {.begin = workspace_.begin, .bytes = op.workspace_bytes()}},
               native_stream);
      }
    };
    device_.submit(stream_, {.name = "trial", .reads = read, .writes = written, .cost = {}, .run = run});
  }

  double worst_error() {
    const std::uint64_t bytes = element_bytes();
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      copy(CopyDirection::kDeviceToHost, {.begin = sampled_->range().begin + i * bytes, .bytes = bytes},
           {.begin = result_.begin + samples_[i].element * bytes, .bytes = bytes});
    }
    synchronize();
    const std::vector<float> written = widened(question_.elements, sampled_->bytes());
    double worst = 0;
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      const double error = std::abs(static_cast<double>(written[i]) - samples_[i].value);
      if (!std::isfinite(error)) {
        return std::numeric_limits<double>::infinity();
      }
      worst = std::max(worst, error);
    }
    return worst;
  }

  // The mean time of `runs` back-to-back runs between two events. One more run comes before the first event.
  // While the GPU executes that run, the host submits the others.
  double seconds_of(const VendorOp& op, int runs) {
    launch(op, 1);
    device_.set_tracing(true);
    launch(op, runs);
    device_.set_tracing(false);
    synchronize();
    double seconds = 0;
    for (const TraceEvent& event : device_.take_trace()) {
      seconds += event.kind == TraceEvent::Kind::kWork ? event.end_seconds - event.begin_seconds : 0;
    }
    return seconds / runs;
  }

  // The first traced submission starts the device's clock, and the host waits for that. This function makes
  // that submission, so that no engine's time includes the wait.
  void begin_timing() {
    device_.set_tracing(true);
    upload(result_, 0);
    device_.set_tracing(false);
    device_.take_trace();
  }

  Device& device_;
  VendorLibrary& library_;
  const EngineQuestion& question_;
  const PassTensors tensors_;
  const TrialValues& values_;
  const std::uint64_t operand_bytes_;
  const StreamId stream_;
  std::vector<SampledElement> samples_;
  double rms_product_ = 0;
  HostBlock staging_;  // contains values_, later NaN
  std::optional<HostBlock> sampled_;
  std::optional<DeviceBlock> block_;
  AddressRange first_;
  AddressRange second_;
  AddressRange result_;
  AddressRange workspace_;
};

// The unit roundoff of the format to which the engine rounds. In fp32, the engine may round its inputs to
// TF32; the roundoff is 0 if it does not. With narrow types, the engine rounds its result to that type.
double rounding_of(const Engine& engine, DataType elements) {
  switch (elements) {
    case DataType::kF16:
      return kFp16Roundoff;
    case DataType::kBf16:
      return kBf16Roundoff;
    default:
      return engine.rounds_inputs() ? kTf32Roundoff : 0;
  }
}

class DeviceTrials final : public EngineTrials {
 public:
  DeviceTrials(std::function<std::unique_ptr<Device>()> make_device, std::shared_ptr<VendorLibrary> library,
               const DeviceTrialOptions& options)
      : make_device_(std::move(make_device)), library_(std::move(library)), options_(options) {}

  std::vector<EngineTrial> run(const EngineQuestion& question, std::span<const Engine> engines,
                               TrialKind kind, const std::function<bool()>& go_on) override {
    if (!is_floating(question.elements)) {
      throw InvalidArgument(to_string(question) + ": trials are of floating-point numbers");
    }
    const std::unique_ptr<Device> device = make_device_();
    const TrialValues values(question.elements, drawn_);
    Bench bench(*device, *library_, question, values);
    std::uint64_t workspace_bytes = 0;
    for (const Engine& engine : engines) {
      if (bench.fits(engine)) {
        workspace_bytes = std::max(workspace_bytes, engine.workspace_bytes);
      }
    }
    bench.allocate(workspace_bytes);
    std::vector<EngineTrial> trials;
    TimingPlan plan{.runs = options_.timed_runs, .go_on = go_on};
    for (const Engine& engine : engines) {
      if (!go_on()) {
        break;
      }
      trials.push_back(bench.fits(engine)
                           ? run_one(*device, bench, engine, kind == TrialKind::kTimed ? &plan : nullptr)
                           : without_room(engine, *device));
      plan.best_seconds = std::min(plan.best_seconds, trials.back().seconds.value_or(plan.best_seconds));
    }
    return trials;
  }

 private:
  static EngineTrial run_one(Device& device, Bench& bench, const Engine& engine, const TimingPlan* plan) {
    try {
      return bench.run(engine, plan);
    } catch (const DeviceError& error) {
      if (error.lost()) {
        throw;
      }
      clear_up(device);
      return {.failure = error.what()};
    } catch (const OutOfMemory& error) {
      clear_up(device);
      return {.failure = error.what(), .no_room = true};
    } catch (const NoEngine& error) {
      return {.failure = error.what()};
    }
  }

  // Prepares the device for the next engine after a failed run.
  static void clear_up(Device& device) {
    device.set_tracing(false);
    device.recover();
    device.take_trace();  // discards the trace of the failed run
  }

  static EngineTrial without_room(const Engine& engine, const Device& device) {
    return {.failure = "a workspace of " + format_size(engine.workspace_bytes) +
                       " and the operands do not fit into " + format_size(device.properties().budget_bytes),
            .no_room = true};
  }

  std::function<std::unique_ptr<Device>()> make_device_;
  std::shared_ptr<VendorLibrary> library_;
  DeviceTrialOptions options_;
  const std::vector<float> drawn_ = random_values(kPeriod);
};

}  // namespace

std::unique_ptr<EngineTrials> make_device_trials(std::function<std::unique_ptr<Device>()> make_device,
                                                 std::shared_ptr<VendorLibrary> library,
                                                 const DeviceTrialOptions& options) {
  return std::make_unique<DeviceTrials>(std::move(make_device), std::move(library), options);
}

double trial_tolerance(const Engine& engine, DataType elements, std::uint64_t products, double rms_product) {
  const bool transformed =
      engine.has(NumericalNote::kWinograd) || engine.has(NumericalNote::kFft) || engine.rounds_inputs();
  const double sums = (transformed ? kTransformedRoundoffs : kPlainRoundoffs) * kFp32Roundoff;
  const double rounding = rounding_of(engine, elements);
  const auto n = static_cast<double>(products);
  return kDeviations * rms_product * (sums * n + rounding * std::sqrt(n));
}

}  // namespace vdnn::cuda
