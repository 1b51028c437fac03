#pragma once
// What the ops of one tape cost on one device, measured there before a run (cost_measurement.h) or in it
// (learned_costs.h) and kept in a file. With
// it `sim` takes seconds that were seen in the place of seconds that follow from counts and rates, and the
// preference `performance` takes the fastest algorithm in the place of the library's first choice.
//
// Times hold for what they were measured of and for nothing else: for another network, batch, device, number
// of threads or library the costs are refused, as are costs that lack an op of the tape or have one too many.
//
// A simulated device measures nothing: its costs are what its model predicts (expected_costs() in
// learned_costs.h), in the same form, so that they can be read, edited and planned with. They are marked,
// serve simulated devices alone, and leave `performance` at the library's first choice.
//
// The file is JSON (docs/measured_costs.schema.json). Its version is 1 where all times were measured, 2 where
// some were reckoned, 3 where all come from a model; all are read.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "vdnn/network.h"
#include "vdnn/sim_device.h"
#include "vdnn/tape.h"

namespace vdnn {

// Of fewer, a median says little.
inline constexpr std::uint64_t kFewestMeasuredSteps = 5;

// One op with one algorithm, over launches of different steps.
struct MeasuredTime {
  // Median. A launch takes from when its stream was done with what came before until it is done: the gap in
  // front of it is part of it.
  double seconds = 0;         // > 0
  double spread_seconds = 0;  // from lower to upper quartile
  // 0: none was seen, and the seconds are reckoned from what was expected (learned_costs.h).
  std::uint64_t launches = 0;

  friend bool operator==(const MeasuredTime&, const MeasuredTime&) = default;
};

// What times depend on.
struct MeasuredSetting {
  std::string model;
  std::string input;  // of a sample, "3x32x32"
  std::int64_t classes = 0;
  std::int64_t batch = 0;
  std::string device;             // "cpu", the GPU as its maker calls it, or the simulated GPU's profile
  int threads = 0;                // compute threads of cpu; 1 of a simulated GPU
  std::string algorithms_source;  // as the catalog says it
  // Tell networks of one name apart, and optimizers.
  std::uint64_t feature_map_bytes = 0;
  std::uint64_t persistent_bytes = 0;  // parameters and the optimizer's state

  friend bool operator==(const MeasuredSetting&, const MeasuredSetting&) = default;
};

struct MeasuredCosts {
  MeasuredSetting setting;
  bool modelled = false;                         // by a simulated device; no time has launches
  std::optional<double> link_gbytes_per_second;  // what copies were slowed to (session.h)
  LinkRates link_bytes_per_second;
  LinkRates link_bytes_per_second_both_ways;  // at most those of one
  double launch_seconds = 0;                  // of a copy, besides its bytes
  // By name of op and of algorithm. None where nothing was measured, since it did not fit into the budget; of
  // each op something was.
  std::map<std::string, std::map<std::string, std::optional<MeasuredTime>>> ops;
};

// `device` as MeasuredSetting has it.
MeasuredSetting measured_setting(const Network& network, const Tape& tape, const std::string& device,
                                 int threads, const std::string& algorithms_source);

// Throws InvalidArgument that names the first key in which the costs were measured of something else than
// `here`, with both values.
void require_measured_of(const MeasuredCosts& costs, const MeasuredSetting& here);

// The tape with measured (or modelled) seconds for each algorithm of each op. What did not fit when it was
// measured is taken to be no faster than anything that did. Throws InvalidArgument that names an op or an
// algorithm that only one of both has.
std::shared_ptr<const Tape> with_measured_costs(const Tape& tape, const MeasuredCosts& costs);
// The device with the rates of the link and the time of a launch that were measured.
SimProfile with_measured_rates(SimProfile profile, const MeasuredCosts& costs);

// The text of a file. Reading what was written gives the same costs.
std::string to_text(const MeasuredCosts& costs);
// Throws DataError, which names the key, where one is missing, not known, or has a value that cannot be.
MeasuredCosts parse_measured_costs(std::string_view text);
// Of a file. Throws DataError with its name.
MeasuredCosts read_measured_costs(const std::filesystem::path& path);

}  // namespace vdnn
