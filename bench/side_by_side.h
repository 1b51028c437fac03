#pragma once
// Contenders measured side by side. What disturbs a measurement on a shared machine (other programs, the
// clock's rate) lasts longer than one run does. So every round measures each contender once, another one
// first each time, and what is compared are figures of the same round.

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

// What is reported of a run, from its seconds: a rate, or nanoseconds a piece.
using Figure = std::function<double(double seconds)>;

// Of one contender, or what is made of several: a figure a round.
using Figures = std::vector<double>;

// Runs rounds until Google Benchmark has enough, which counts a round as one iteration that takes the time of
// all contenders together. Returns the figures in the order of the contenders; counter `NAME` is the median
// of each.
std::vector<Figures> side_by_side(benchmark::State& state, const std::vector<Contender>& contenders,
                                  const Figure& figure);

// Counter `name`: the median of the rounds' ratios; `NAME spread`: from their lower to their upper quartile.
void report_ratio(benchmark::State& state, const std::string& name, const Figures& figures,
                  const Figures& reference);

}  // namespace vdnn::bench
