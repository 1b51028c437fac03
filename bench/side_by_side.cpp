#include "bench/side_by_side.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>

namespace vdnn::bench {

namespace {

double measured_seconds(const Contender& contender) {
  if (contender.prepare) {
    contender.prepare();
  }
  const auto begin = std::chrono::steady_clock::now();
  contender.run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The quantile `part` (from 0 to 1) of the sample, interpolated between neighbours.
double quantile(Figures sample, double part) {
  std::ranges::sort(sample);
  const double position = part * static_cast<double>(sample.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sample.size() - 1);
  return std::lerp(sample[below], sample[above], position - static_cast<double>(below));
}

}  // namespace

std::vector<Figures> side_by_side(benchmark::State& state, const std::vector<Contender>& contenders,
                                  const Figure& figure) {
  std::vector<Figures> figures(contenders.size());
  for (std::size_t round = 0; state.KeepRunning(); ++round) {
    double seconds_of_round = 0;
    for (std::size_t turn = 0; turn < contenders.size(); ++turn) {
      const std::size_t index = (round + turn) % contenders.size();
      const double seconds = measured_seconds(contenders[index]);
      figures[index].push_back(figure(seconds));
      seconds_of_round += seconds;
    }
    state.SetIterationTime(seconds_of_round);
  }
  for (std::size_t index = 0; index < contenders.size(); ++index) {
    state.counters[contenders[index].name] = quantile(figures[index], 0.5);
  }
  return figures;
}

void report_ratio(benchmark::State& state, const std::string& name, const Figures& figures,
                  const Figures& reference) {
  Figures ratios(figures.size());
  std::ranges::transform(figures, reference, ratios.begin(), std::divides());
  state.counters[name] = quantile(ratios, 0.5);
  state.counters[name + " spread"] = quantile(ratios, 0.75) - quantile(ratios, 0.25);
}

}  // namespace vdnn::bench
