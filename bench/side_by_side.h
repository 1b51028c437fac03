#pragma once
// Contenders measured side by side. Disturbances on a shared machine (other programs, changes of the clock
// rate) last longer than one run. So every round measures each contender once, in rotating order, and only
// figures of the same round are compared.

#include <benchmark/benchmark.h>

#include <functional>
#include <string>
#include <vector>

namespace vdnn::bench {

struct Contender {
  std::string name;
  std::function<void()> run;
  std::function<void()> prepare = {};  // before each run, not measured; may be empty
};

// The figure reported for a run, computed from its seconds: a rate, or nanoseconds per piece.
using Figure = std::function<double(double seconds)>;

// One figure per round, of one contender or computed from several contenders.
using Figures = std::vector<double>;

// Runs rounds until Google Benchmark has measured long enough; a round is one iteration with the time of all
// contenders together. Returns the figures in the order of the contenders. Reports the median of each
// contender's figures as a counter with the contender's name.
std::vector<Figures> side_by_side(benchmark::State& state, const std::vector<Contender>& contenders,
                                  const Figure& figure);

// Reports the median of the rounds' ratios as counter `name`, and the distance between their quartiles as
// `NAME spread`.
void report_ratio(benchmark::State& state, const std::string& name, const Figures& figures,
                  const Figures& reference);

}  // namespace vdnn::bench
