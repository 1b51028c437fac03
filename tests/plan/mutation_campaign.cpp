#include "tests/plan/mutation_campaign.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iomanip>
#include <optional>
#include <ostream>
#include <vector>

#include "src/base/random.h"
#include "tests/plan/oracle.h"
#include "vdnn/checker.h"

namespace vdnn::testing {

namespace {

// Moving each instruction of a schedule as far as possible takes time quadratic in the schedule's length.
constexpr std::size_t kMostMovedOneByOne = 300;

class Campaign {
 public:
  Campaign(const Subject& subject, const CampaignOptions& options, const Trials& trials)
      : subject_(subject),
        options_(options),
        trials_(trials),
        oracle_(*subject.tape, subject.schedule),
        seed_(seed_of(subject.name)) {}

  Tallies run() {
    for (std::size_t kind = 0; kind < kMutationKinds; ++kind) {
      kind_ = static_cast<MutationKind>(kind);
      if (options_.only_kind && kind_ != *options_.only_kind) {
        continue;
      }
      const std::uint64_t count = wanted();
      if (const auto all = no_more_than(count)) {
        for (const Mutant& mutant : *all) {
          judge(mutant, seed_);
        }
      } else {
        draw(count);
      }
    }
    return tallies_;
  }

 private:
  // A seed per subject, so that each subject draws different breaks.
  static std::uint64_t seed_of(const std::string& name) {
    std::uint64_t seed = 0;
    for (const char c : name) {
      seed = mix_seed(seed, static_cast<unsigned char>(c));
    }
    return seed;
  }

  // The fractional part of work / length is the probability of one more break.
  std::uint64_t wanted() const {
    const std::uint64_t length = subject_.schedule.instructions.size();
    const bool one_more =
        mix_seed(seed_, static_cast<std::uint64_t>(kind_)) % length < options_.work % length;
    return std::max(options_.least, options_.work / length + (one_more ? 1 : 0));
  }

  // All breaks of the kind; empty if there are more than `count`.
  std::optional<std::vector<Mutant>> no_more_than(std::uint64_t count) const {
    std::vector<Mutant> result;
    Choices choices = Choices::all();
    do {
      if (auto mutant = mutate(*subject_.tape, subject_.schedule, kind_, choices)) {
        if (result.size() == count) {
          return std::nullopt;
        }
        result.push_back(std::move(*mutant));
      }
    } while (choices.next());
    return result;
  }

  void draw(std::uint64_t count) {
    for (std::uint64_t draws = 0; count > 0; ++draws) {
      const std::uint64_t seed = mix_seed(mix_seed(seed_, static_cast<std::uint64_t>(kind_)), draws);
      Choices choices(seed);
      if (const auto mutant = mutate(*subject_.tape, subject_.schedule, kind_, choices)) {
        judge(*mutant, seed);
        --count;
      }
    }
  }

  void judge(const Mutant& mutant, std::uint64_t seed) {
    const std::string objection = objection_of_oracle(mutant.schedule, seed);
    const std::vector<std::string> findings = check_schedule(*subject_.tape, mutant.schedule);
    reproducer_ =
        subject_.name + ", " + to_string(kind_) + ": " + mutant.what + " (seed " + std::to_string(seed) + ")";
    if (objection.empty()) {
      judge_harmless(mutant.schedule, findings, seed);
    } else {
      EXPECT_FALSE(findings.empty()) << reproducer_ << "; the oracle: " << objection;
      judge_changed(mutant.schedule, !findings.empty(), seed);
    }
  }

  std::string objection_of_oracle(const Schedule& schedule, std::uint64_t seed) const {
    std::string objection = oracle_.objection(schedule, Exploration::kConflicts, seed);
    if (objection.empty() && schedule.instructions.size() <= kMostMovedOneByOne) {
      objection = oracle_.objection(schedule, Exploration::kEverything, seed);
    }
    return objection;
  }

  void judge_changed(const Schedule& schedule, bool found, std::uint64_t seed) {
    Tally& counts = tally();
    ++counts.changed;
    counts.found += found ? 1 : 0;
    if (trials_.simulate && is_well_formed(*subject_.tape, schedule)) {
      ++counts.changed_run;
      counts.found_running += trials_.simulate(schedule, seed, options_.changed_orders).empty() ? 0 : 1;
    }
  }

  void judge_harmless(const Schedule& schedule, const std::vector<std::string>& findings,
                      std::uint64_t seed) {
    Tally& counts = tally();
    ++counts.harmless;
    if (trials_.simulate) {
      ++counts.harmless_run;
      const std::string shown = trials_.simulate(schedule, seed, options_.harmless_orders);
      EXPECT_EQ(shown, "") << reproducer_;
    }
    const std::string rule = broken_rule_of_drivers(*subject_.tape, schedule);
    if (!rule.empty()) {
      ++counts.refused;
      EXPECT_FALSE(findings.empty()) << reproducer_ << "; drivers: " << rule;
    } else if (!findings.empty()) {
      ADD_FAILURE() << reproducer_ << ": harmless, but refused; the checker: " << findings.front();
    } else if (trials_.compute && counts.computed < options_.most_computed_of_a_kind) {
      ++counts.computed;
      const std::string shown = trials_.compute(schedule);
      EXPECT_EQ(shown, "") << reproducer_;
    }
  }

  Tally& tally() { return tallies_.at(static_cast<std::size_t>(kind_)); }

  const Subject& subject_;
  const CampaignOptions& options_;
  const Trials& trials_;
  const Oracle oracle_;
  const std::uint64_t seed_;
  MutationKind kind_{};
  std::string reproducer_;
  Tallies tallies_{};
};

void print_line(std::ostream& out, const std::string& name, const Tally& tally) {
  out << std::left << std::setw(34) << name << std::right << std::setw(8) << tally.breaks() << std::setw(9)
      << tally.changed << std::setw(9) << tally.found << std::setw(9) << tally.changed_run << std::setw(9)
      << tally.found_running << std::setw(10) << tally.harmless << std::setw(9) << tally.refused
      << std::setw(9) << tally.harmless_run << std::setw(9) << tally.computed << '\n';
}

}  // namespace

Tally& Tally::operator+=(const Tally& other) {
  changed += other.changed;
  found += other.found;
  changed_run += other.changed_run;
  found_running += other.found_running;
  harmless += other.harmless;
  harmless_run += other.harmless_run;
  computed += other.computed;
  refused += other.refused;
  return *this;
}

void add(Tallies& to, const Tallies& more) {
  for (std::size_t kind = 0; kind < kMutationKinds; ++kind) {
    to.at(kind) += more.at(kind);
  }
}

Tally sum(const Tallies& tallies) {
  Tally total;
  for (const Tally& tally : tallies) {
    total += tally;
  }
  return total;
}

void print(std::ostream& out, const std::string& title, const Tallies& tallies) {
  out << std::left << std::setw(34) << title << std::right << std::setw(8) << "breaks" << std::setw(9)
      << "changed" << std::setw(9) << "found" << std::setw(9) << "run" << std::setw(9) << "shown"
      << std::setw(10) << "harmless" << std::setw(9) << "refused" << std::setw(9) << "run" << std::setw(9)
      << "computed" << '\n';
  for (std::size_t kind = 0; kind < kMutationKinds; ++kind) {
    print_line(out, to_string(static_cast<MutationKind>(kind)), tallies.at(kind));
  }
  print_line(out, "in total", sum(tallies));
}

Tallies run_campaign(const Subject& subject, const CampaignOptions& options, const Trials& trials) {
  return Campaign(subject, options, trials).run();
}

}  // namespace vdnn::testing
