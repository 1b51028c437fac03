// Files of measured costs (src/run/measured_costs.cpp), as `vdnn profile` writes them.

#include "fuzz/target.h"
#include "vdnn/error.h"
#include "vdnn/measured_costs.h"

namespace vdnn::fuzz {

bool run_measured_costs(Input input) {
  const auto costs = attempt<DataError>([&] { return parse_measured_costs(to_text(input)); });
  if (!costs) {
    return false;
  }
  const std::string text = to_text(*costs);
  const MeasuredCosts again = parse_measured_costs(text);
  require(to_text(again) == text, "rewritten costs have the same text");
  require(again.setting == costs->setting && again.ops == costs->ops && again.modelled == costs->modelled,
          "rewritten costs are equal");
  for (const auto& [op, times] : costs->ops) {
    for (const auto& [algorithm, time] : times) {
      require(!time || time->seconds > 0, "every measured time is positive");
    }
  }
  return true;
}

std::vector<Seed> measured_costs_seeds() {
  MeasuredCosts costs{.setting = {.model = "lenet",
                                  .input = "1x28x28",
                                  .classes = 10,
                                  .batch = 64,
                                  .device = "cpu",
                                  .threads = 1,
                                  .algorithms_source = "onednn 2.6.3",
                                  .feature_map_bytes = 5169664,
                                  .persistent_bytes = 3532576},
                      .link_bytes_per_second = {.device_to_host = 8e9, .host_to_device = 8e9},
                      .link_bytes_per_second_both_ways = {.device_to_host = 5e9, .host_to_device = 8e9},
                      .launch_seconds = 1e-6};
  const Seed none{.name = "no-ops", .bytes = to_bytes(to_text(costs))};
  costs.link_gbytes_per_second = 1.5;
  costs.ops["conv1.forward"] = {
      {"direct", MeasuredTime{.seconds = 4e-4, .spread_seconds = 2e-5, .launches = 21}},
      {"gemm", std::nullopt}};
  const Seed two{.name = "two-algorithms", .bytes = to_bytes(to_text(costs))};
  costs.modelled = true;
  costs.link_gbytes_per_second.reset();
  costs.ops["conv1.forward"] = {{"direct", MeasuredTime{.seconds = 4e-4}}};
  return {none, two, {.name = "modelled", .bytes = to_bytes(to_text(costs))}};
}

}  // namespace vdnn::fuzz
