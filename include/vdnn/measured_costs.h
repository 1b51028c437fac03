#pragma once
// The times of the ops of one tape on one device, measured before a run (cost_measurement.h) or during it
// (learned_costs.h) and kept in a file. With them `sim` uses measured seconds instead of seconds from counts
// and rates, and the preference `performance` selects the fastest algorithm instead of the library's first
// choice.
//
// Times are valid only for the network, batch, device, number of threads and library of the measurement.
// Costs of another setting are refused, and so are costs that lack an op of the tape or have an additional
// one.
//
// A simulated device measures nothing. Its costs are predictions of its model (expected_costs() in
// learned_costs.h) in the same form, so that people can read and edit them and plan with them. They are
// marked, apply only to simulated devices, and leave `performance` at the library's first choice.
//
// The file is JSON (docs/measured_costs.schema.json). Its version is 1 if all times were measured, 2 if some
// were derived, 3 if all come from a model. All versions can be read.

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

// The fewest steps for a useful median.
inline constexpr std::uint64_t kFewestMeasuredSteps = 5;

// The time of one op with one algorithm, over launches of different steps.
struct MeasuredTime {
  // Median. A launch lasts from the end of the previous work on its stream to its own end, the gap included.
  double seconds = 0;         // > 0
  double spread_seconds = 0;  // from lower to upper quartile
  // 0: no launch was traced, and the seconds are derived from expected ones (learned_costs.h).
  std::uint64_t launches = 0;

  friend bool operator==(const MeasuredTime&, const MeasuredTime&) = default;
};

// The setting that times depend on.
struct MeasuredSetting {
  std::string model;
  std::string input;  // of a sample, "3x32x32"
  std::int64_t classes = 0;
  std::int64_t batch = 0;
  std::string device;             // "cpu", the GPU's product name, or the simulated GPU's profile
  int threads = 0;                // compute threads of cpu; 1 for a simulated GPU
  std::string algorithms_source;  // as in OpCatalog
  // These figures distinguish networks of the same name, and optimizers.
  std::uint64_t feature_map_bytes = 0;
  std::uint64_t persistent_bytes = 0;  // parameters and the optimizer's state

  friend bool operator==(const MeasuredSetting&, const MeasuredSetting&) = default;
};

struct MeasuredCosts {
  MeasuredSetting setting;
  bool modelled = false;                         // by a simulated device; all MeasuredTime::launches are 0
  std::optional<double> link_gbytes_per_second;  // limit on the rate of copies (SessionOptions)
  LinkRates link_bytes_per_second;
  LinkRates link_bytes_per_second_both_ways;  // at most those of one way
  double launch_seconds = 0;                  // fixed time of a copy
  // By name of op and of algorithm. Absent for algorithms that did not fit into the budget; each op has at
  // least one time.
  std::map<std::string, std::map<std::string, std::optional<MeasuredTime>>> ops;
};

// The setting of this tape; `device` as in MeasuredSetting.
MeasuredSetting measured_setting(const Network& network, const Tape& tape, const std::string& device,
                                 int threads, const std::string& algorithms_source);

// Throws InvalidArgument if the setting of the costs is not `here`, with the first different key and both
// values.
void require_measured_of(const MeasuredCosts& costs, const MeasuredSetting& here);

// The tape with measured (or modelled) seconds for each algorithm of each op. An algorithm without a time
// counts as no faster than the algorithms with one. Throws InvalidArgument, with the name, for an op or
// algorithm that only one of tape and costs has.
std::shared_ptr<const Tape> with_measured_costs(const Tape& tape, const MeasuredCosts& costs);
// The profile with the measured rates of the link and the measured time of a launch.
SimProfile with_measured_rates(SimProfile profile, const MeasuredCosts& costs);

// The text of a file. Parsing it gives the same costs.
std::string to_text(const MeasuredCosts& costs);
// Throws DataError, which names the key, if a key is missing, unknown or has an impossible value.
MeasuredCosts parse_measured_costs(std::string_view text);
// Reads a file. Throws DataError with its name.
MeasuredCosts read_measured_costs(const std::filesystem::path& path);

}  // namespace vdnn
