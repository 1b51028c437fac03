#include "src/run/max_batch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <utility>

#include "src/run/scaling.h"
#include "vdnn/option_error.h"

namespace vdnn {

namespace {

// The relative accuracy of searches whose trials take long.
constexpr double kResolution = 0.03;

constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 60U;

std::string percent(double fraction) {
  std::ostringstream text;
  text << 100 * fraction << " %";
  return text.str();
}

// --- where accepted batches end ----------------------------------------------------------------------------

struct Look {
  bool accepted = false;
  // The fraction of the permitted memory or time that the batch needs: at most 1 if the batch is accepted. It
  // usually grows linearly with the batch. Infinite if unknown.
  double load = std::numeric_limits<double>::infinity();
  BatchLimit limit = BatchLimit::kDeviceMemory;  // why the batch is not accepted
  std::string refusal;
};

struct Boundary {
  std::int64_t accepted = 0;
  std::int64_t next = 0;  // a larger batch, which is not accepted
  Look why;               // the result of `next`
};

using LookAt = std::function<Look(std::int64_t)>;

// Narrows the interval between an accepted batch and a larger one that is not accepted. Looks at batches at
// which the load should reach 1. Stops in three cases: the upper batch is at most `resolution` larger than
// the lower one, the load of the lower batch is nearly 1, or `most_looks` looks are made.
class Bracket {
 public:
  Bracket(const LookAt& look_at, double resolution, int most_looks = std::numeric_limits<int>::max())
      : look_at_(look_at), resolution_(resolution), looks_left_(most_looks) {}

  // Starts from the accepted batch `accepted`, whose result is `look`, and first finds a larger batch that is
  // not accepted.
  Boundary find(std::int64_t accepted, const Look& look) {
    low_ = accepted;
    low_load_ = look.load;
    std::int64_t guess = accepted * kFirstStep;
    while (high_ == 0) {
      const double before = low_load_;
      const std::int64_t from = low_;
      look_at(guess);
      guess = std::min(kFirstStep * low_, std::max(low_ + 1, reaches(from, before, low_, low_load_)));
    }
    narrow();
    return {.accepted = low_, .next = high_, .why = why_};
  }
  Boundary find(std::int64_t accepted, const Look& look, std::int64_t next, const Look& why) {
    low_ = accepted;
    low_load_ = look.load;
    high_ = next;
    why_ = why;
    narrow();
    return {.accepted = low_, .next = high_, .why = why_};
  }

 private:
  bool is_narrow() const {
    return static_cast<double>(high_ - low_) <= std::max(1.0, resolution_ * static_cast<double>(low_)) ||
           (resolution_ > 0 && low_load_ >= aim());
  }

  void narrow() {
    int since_halved = 0;
    std::int64_t halved = high_ - low_;
    while (!is_narrow() && looks_left_ > 0) {
      const std::int64_t middle = low_ + (high_ - low_) / 2;
      const bool guess = since_halved < kMostGuesses && std::isfinite(why_.load);
      look_at(std::clamp(guess ? reaches(low_, low_load_, high_, why_.load) : middle, low_ + 1, high_ - 1));
      since_halved = high_ - low_ <= halved / 2 ? 0 : since_halved + 1;
      if (since_halved == 0 || !guess) {
        since_halved = 0;
        halved = high_ - low_;
      }
    }
  }

  void look_at(std::int64_t batch) {
    --looks_left_;
    Look look = look_at_(batch);
    if (look.accepted) {
      low_ = batch;
      low_load_ = look.load;
    } else {
      high_ = batch;
      why_ = std::move(look);
    }
  }

  // The load at which the search aims. It is a little below 1, so that a guess near the limit is more often
  // accepted.
  double aim() const { return 1 - resolution_ / 4; }
  // The batch at which the line through (a, load_a) and (b, load_b) reaches aim().
  std::int64_t reaches(std::int64_t a, double load_a, std::int64_t b, double load_b) const {
    const double rise = (load_b - load_a) / static_cast<double>(b - a);
    return rise > 0 && std::isfinite(rise)
               ? a + static_cast<std::int64_t>(std::min(std::max(aim() - load_a, 0.0) / rise, 1e15))
               : 2 * b;
  }

  static constexpr std::int64_t kFirstStep = 8;
  static constexpr int kMostGuesses = 2;  // consecutive guesses that may fail to halve the interval

  const LookAt& look_at_;
  const double resolution_;
  int looks_left_;
  std::int64_t low_ = 0;
  double low_load_ = 0;
  std::int64_t high_ = 0;  // 0 if unknown
  Look why_;
};

// --- trials ------------------------------------------------------------------------------------------------

// Plans batches, reports each of them, and decides whether it is accepted.
class Trials {
 public:
  explicit Trials(const MaxBatchOptions& options) : options_(options) {
    if (options.overhead && !(*options.overhead >= 0)) {
      throw InvalidOption({{.option = "overhead", .value = percent(*options.overhead)}},
                          "must be at least 0 %");
    }
  }

  // Plans `run`. It is accepted if it fits and its overhead is at most `overhead`. Without `overhead`, it is
  // accepted if it fits.
  BatchTrial attempt(const RunOptions& run, const std::optional<double>& overhead) {
    if (options_.looking_at) {
      options_.looking_at(run.model.batch);
    }
    return judged(plan_run(run), overhead);
  }
  BatchTrial judged(PlannedRun run, const std::optional<double>& overhead) {
    BatchTrial trial{.run = std::move(run)};
    trial.oracle_step_seconds = oracle_step_seconds(trial.run);
    trial.accepted = trial.run.fits() && (!overhead || trial.overhead() <= *overhead);
    if (trial.run.fits()) {
      least_overhead_ = std::min(least_overhead_.value_or(trial.overhead()), trial.overhead());
    }
    if (options_.tried) {
      options_.tried(trial);
    }
    return trial;
  }

  std::optional<double> least_overhead() const { return least_overhead_; }
  // Call it if batches fit but none is accepted. `which` names the tried batches in the message.
  [[noreturn]] void refuse_overhead(const std::string& which) const {
    throw InvalidOption(
        {{.option = "overhead", .value = percent(options_.overhead.value())}},
        "all of " + which + " that fit exceed it; the least overhead is " + percent(least_overhead_.value()));
  }

 private:
  const MaxBatchOptions& options_;
  std::optional<double> least_overhead_;
};

double part(std::uint64_t of, std::uint64_t whole) {
  return static_cast<double>(of) / static_cast<double>(whole);
}

class Search {
 public:
  explicit Search(const MaxBatchOptions& options) : options_(options), trials_(options) {}

  MaxBatch find() {
    MaxBatch found;
    found.without_offloading = find_without_offloading();
    if (options_.run.policy == Policy::kOffloadNone) {
      if (!found.without_offloading) {
        require_fit(plan_run(with_batch(1)));
      }
      found.most = *found.without_offloading;
    } else {
      found.most = find_most(found.without_offloading ? found.without_offloading->trial.run.batch() : 1);
    }
    found.within_overhead = find_within_overhead(found);
    if (options_.overhead && !found.within_overhead) {
      trials_.refuse_overhead("the planned batches");
    }
    found.least_overhead = trials_.least_overhead().value();
    return found;
  }

  std::optional<std::int64_t> find_smaller(const PlannedRun& refused) {
    const std::int64_t batch = refused.batch();
    const Look one = batch > 1 ? look_at_most(1) : Look{};
    if (!one.accepted) {
      return std::nullopt;
    }
    const LookAt look = [this](std::int64_t each) { return look_at_most(each); };
    return Bracket(look, kResolution, kMostLooks - 1).find(1, one, batch, look_at_memory(refused)).accepted;
  }

 private:
  RunOptions with_batch(std::int64_t batch) const {
    RunOptions run = options_.run;
    run.model.batch = batch;
    return run;
  }
  RunOptions with_batch(std::int64_t batch, Policy policy) const {
    RunOptions run = with_batch(batch);
    run.policy = policy;
    return run;
  }

  // Returns `look(batch)`, or kRefused with the reason if the network or the device refuses the batch. The
  // refusal of a batch of one sample is rethrown.
  Look look_at(std::int64_t batch, const std::function<Look(std::int64_t)>& look) const {
    if (options_.looking_at) {
      options_.looking_at(batch);
    }
    try {
      return look(batch);
    } catch (const InvalidArgument& error) {
      if (batch == 1) {
        throw;
      }
      return {.limit = BatchLimit::kRefused, .refusal = error.what()};
    }
  }

  // Accepts a batch if the plan's smallest budget, which does not depend on the run's budget, is within the
  // budget.
  Look look_at_memory(const PlannedRun& run) const {
    const double device = part(run.smallest_budget_bytes(), run.target.budget_bytes);
    const double host = part(run.prediction.host_bytes, run.target.host_budget_bytes);
    return {.accepted = device <= 1 && host <= 1,
            .load = std::max(device, host),
            .limit = device > 1 ? BatchLimit::kDeviceMemory : BatchLimit::kHostMemory};
  }
  Look look_without_offloading(std::int64_t batch) const {
    return look_at(batch, [this](std::int64_t each) {
      return look_at_memory(plan_run(with_batch(each, Policy::kOffloadNone)));
    });
  }
  // Plans `optimal` in unlimited memory, since its smallest budget is found faster there.
  Look look_at_most(std::int64_t batch) const {
    return look_at(batch, [this](std::int64_t each) {
      const Policy policy = options_.run.policy.value_or(Policy::kOptimal);
      if (policy != Policy::kOptimal) {
        return look_at_memory(plan_run(with_batch(each, policy)));
      }
      const PlannedRun kept = plan_run(with_batch(each, Policy::kOffloadNone));
      PlannedRun run = plan_again(kept, policy, kUnlimited);
      run.target.budget_bytes = kept.target.budget_bytes;
      return look_at_memory(run);
    });
  }

  LargestBatch largest(BatchTrial trial, const Boundary& boundary) const {
    return {.trial = std::move(trial),
            .next = boundary.next,
            .limit = boundary.why.limit,
            .refusal = boundary.why.refusal};
  }

  std::optional<LargestBatch> find_without_offloading() {
    const Look one = look_without_offloading(1);
    if (!one.accepted) {
      return std::nullopt;
    }
    const LookAt look = [this](std::int64_t batch) { return look_without_offloading(batch); };
    const Boundary boundary = Bracket(look, 0).find(1, one);
    return largest(trials_.attempt(with_batch(boundary.accepted, Policy::kOffloadNone), std::nullopt),
                   boundary);
  }

  // The memory of a batch predicts the memory of other batches closely, so the search looks at few batches.
  // The batch that it finds is then planned in the budget. If that plan does not fit, smaller batches are
  // planned in the budget until one fits.
  LargestBatch find_most(std::int64_t fits) {
    Look look = look_at_most(fits);
    if (!look.accepted) {
      fits = 1;
      look = look_at_most(1);
      if (!look.accepted) {
        require_fit(plan_run(with_batch(1)));
      }
    }
    const LookAt look_at_batch = [this](std::int64_t batch) { return look_at_most(batch); };
    Boundary boundary = Bracket(look_at_batch, 0).find(fits, look);
    BatchTrial trial = trials_.attempt(with_batch(boundary.accepted), std::nullopt);
    while (!trial.accepted && boundary.accepted > 1) {
      boundary = {
          .accepted = boundary.accepted - 1, .next = boundary.accepted, .why = look_at_memory(trial.run)};
      trial = trials_.attempt(with_batch(boundary.accepted), std::nullopt);
    }
    require_fit(trial.run);
    return largest(std::move(trial), boundary);
  }

  Look look_at_overhead(const BatchTrial& trial) const {
    const double load = (1 + trial.overhead()) / (1 + overhead());
    return {.accepted = load <= 1, .load = load, .limit = BatchLimit::kOverhead};
  }
  double overhead() const { return options_.overhead.value_or(kDefaultOverhead); }

  // Starts with the largest batch that fits, and halves the batch until its overhead is permitted. Then
  // searches between that batch and its double.
  std::optional<LargestBatch> find_within_overhead(const MaxBatch& found) {
    const Look most = look_at_overhead(found.most.trial);
    if (most.accepted) {
      return found.most;
    }
    std::optional<BatchTrial> kept;
    const LookAt look = [&](std::int64_t batch) {
      BatchTrial trial = trials_.attempt(with_batch(batch), overhead());
      Look result = trial.run.fits() ? look_at_overhead(trial) : look_at_memory(trial.run);
      if (result.accepted) {
        kept = std::move(trial);
      }
      return result;
    };
    std::int64_t above = found.most.trial.run.batch();
    Look why = most;
    while (above > 1) {
      const std::int64_t batch = above / 2;
      Look look_there = look(batch);
      if (look_there.accepted) {
        const Boundary boundary = Bracket(look, kResolution).find(batch, look_there, above, why);
        return largest(*std::move(kept), boundary);
      }
      above = batch;
      why = std::move(look_there);
    }
    return std::nullopt;
  }

  const MaxBatchOptions& options_;
  Trials trials_;
};

// --- the least memory for a rate ---------------------------------------------------------------------------

class LeastMemory {
 public:
  LeastMemory(const MaxBatchOptions& options, double images_per_second)
      : options_(options), trials_(options), rate_(images_per_second) {}

  BatchTrial find() {
    const std::int64_t smallest = find_smallest_batch();
    std::optional<PlannedRun> best;
    for (const double factor : kFactors) {
      const auto batch = static_cast<std::int64_t>(std::ceil(factor * static_cast<double>(smallest)));
      if (std::optional<PlannedRun> run = kept(batch)) {
        find_least(*std::move(run), best);
      }
    }
    if (!best) {
      refuse("in " + std::to_string(budget_of(kept(smallest).value())) + " bytes");
    }
    RunOptions run = with_batch(best->batch());
    run.policy = best->plan.options.policy;
    run.memory_bytes = best->target.budget_bytes;
    return trials_.attempt(run, std::nullopt);
  }

 private:
  // The tried batches, as multiples of the smallest batch that is fast enough. Larger batches leave more time
  // for offloads.
  static constexpr std::array kFactors{1.0, 1.25, 1.5, 2.0, 3.0, 4.0};

  RunOptions with_batch(std::int64_t batch) const {
    RunOptions run = options_.run;
    run.model.batch = batch;
    return run;
  }
  // Plans the batch under `none` in unlimited memory. Returns nothing if the network or the device refuses
  // the batch.
  std::optional<PlannedRun> kept(std::int64_t batch) const {
    if (options_.looking_at) {
      options_.looking_at(batch);
    }
    try {
      RunOptions run = with_batch(batch);
      run.policy = Policy::kOffloadNone;
      return plan_run(run);
    } catch (const InvalidArgument&) {
      if (batch == 1) {
        throw;
      }
      return std::nullopt;
    }
  }
  bool is_fast(const PlannedRun& run) const { return predict_scaling(run).images_per_second >= rate_; }
  // The device budget in which the run was planned.
  static std::uint64_t budget_of(const PlannedRun& run) { return run.target.budget_bytes; }
  Policy policy() const { return options_.run.policy.value_or(Policy::kOptimal); }

  [[noreturn]] void refuse(const std::string& where) const {
    std::ostringstream text;
    text << rate_;
    throw InvalidOption({{.option = "images_per_second", .value = text.str()}},
                        "no batch reaches this rate " + where);
  }

  std::int64_t find_smallest_batch() const {
    std::int64_t slow = 0;
    std::int64_t fast = 1;
    for (;; fast *= 2) {
      const std::optional<PlannedRun> run = kept(fast);
      if (!run) {
        refuse("in unlimited memory");
      }
      if (is_fast(*run)) {
        break;
      }
      slow = fast;
    }
    while (fast - slow > 1) {
      const std::int64_t middle = slow + (fast - slow) / 2;
      const std::optional<PlannedRun> run = kept(middle);
      (run && is_fast(*run) ? fast : slow) = middle;
    }
    return fast;
  }

  // Searches between the smallest budget of the run's batch and the budget of `best`, the least found so far.
  // Sets `best` to the run in the least budget found.
  void find_least(PlannedRun run, std::optional<PlannedRun>& best) const {
    const auto resolution = [](std::uint64_t bytes) {
      return static_cast<std::uint64_t>(kResolution * static_cast<double>(bytes));
    };
    const std::uint64_t granule = run.target.profile.granule_bytes;
    std::uint64_t most = best ? budget_of(*best) - resolution(budget_of(*best)) : budget_of(run);
    const auto try_in = [&](std::uint64_t budget) {
      PlannedRun trial = plan_again(run, policy(), budget);
      const bool found = trial.fits() && is_fast(trial);
      const std::uint64_t smallest = trial.smallest_budget_bytes();
      if (found) {
        best = std::move(trial);
      }
      return std::pair(found, smallest);
    };
    const auto [found, smallest] = try_in(most);
    std::uint64_t least = smallest;
    while (found && most > least + std::max(granule, resolution(most))) {
      const std::uint64_t middle = least + (most - least) / 2;
      (try_in(middle).first ? most : least) = middle;
    }
  }

  const MaxBatchOptions& options_;
  Trials trials_;
  const double rate_;
};

// The number of samples of a global batch that each device computes.
std::uint64_t share_of_device(const RunOptions& run, std::uint64_t global_batch) {
  const std::uint32_t ranks = run.training.ranks;
  if (global_batch == 0 || global_batch % ranks != 0) {
    throw InvalidOption({{.option = "global_batch", .value = std::to_string(global_batch)}},
                        std::to_string(ranks) + " devices cannot share it evenly");
  }
  const std::uint64_t share = global_batch / ranks;
  if (share > std::numeric_limits<std::uint32_t>::max()) {
    throw InvalidOption({{.option = "global_batch", .value = std::to_string(global_batch)}},
                        std::to_string(share) + " samples per device are more than an update can have");
  }
  return share;
}

}  // namespace

const char* to_string(BatchLimit limit) {
  switch (limit) {
    case BatchLimit::kDeviceMemory:
      return "device_memory";
    case BatchLimit::kHostMemory:
      return "host_memory";
    case BatchLimit::kOverhead:
      return "overhead";
    case BatchLimit::kRefused:
      break;
  }
  return "refused";
}

MaxBatch find_max_batch(const MaxBatchOptions& options) {
  return Search(options).find();
}

std::optional<std::int64_t> find_smaller_batch(const PlannedRun& refused, const RunOptions& options) {
  const MaxBatchOptions searched{.run = options};
  return Search(searched).find_smaller(refused);
}

BatchTrial find_least_memory(const MaxBatchOptions& options, double images_per_second) {
  if (!(images_per_second > 0)) {
    throw InvalidOption({{.option = "images_per_second", .value = ""}}, "must be a number above 0");
  }
  return LeastMemory(options, images_per_second).find();
}

BatchTrial find_micro_batch(const MaxBatchOptions& options, std::uint64_t global_batch) {
  const std::uint64_t share = share_of_device(options.run, global_batch);
  Trials trials(options);
  for (std::uint64_t micro_steps = 1;; ++micro_steps) {
    if (share % micro_steps != 0) {
      continue;
    }
    RunOptions run = options.run;
    run.model.batch = static_cast<std::int64_t>(share / micro_steps);
    run.training.micro_steps = static_cast<std::uint32_t>(micro_steps);
    BatchTrial trial = trials.attempt(run, options.overhead);
    if (trial.accepted) {
      return trial;
    }
    if (micro_steps == share) {
      if (!trials.least_overhead()) {
        require_fit(trial.run);
      }
      trials.refuse_overhead("the batches that divide " + std::to_string(share));
    }
  }
}

}  // namespace vdnn
