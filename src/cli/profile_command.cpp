#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <iomanip>
#include <iostream>
#include <string_view>

#include "src/cli/commands.h"
#include "src/cli/option_fields.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/summary.h"
#include "vdnn/cost_measurement.h"
#include "vdnn/learned_costs.h"

namespace vdnn {

namespace {

struct ProfileArguments {
  RunArguments run;
  std::optional<std::uint64_t> steps;
  std::optional<double> link_gbytes_per_s;
  std::string output;
};

void print_costs(std::ostream& out, const MeasuredCosts& costs) {
  if (costs.modelled) {
    out << "simulated: nothing is measured; predictions use these costs\n";
  }
  const auto gigabytes = [](double rate) { return rate / 1e9; };
  out << std::fixed << std::setprecision(1)
      << "link, GB/s to the host and to the device: " << gigabytes(costs.link_bytes_per_second.device_to_host)
      << " and " << gigabytes(costs.link_bytes_per_second.host_to_device) << ", both at once "
      << gigabytes(costs.link_bytes_per_second_both_ways.device_to_host) << " and "
      << gigabytes(costs.link_bytes_per_second_both_ways.host_to_device) << "\neach copy takes "
      << costs.launch_seconds * 1e6 << " us plus the time for its bytes; costs of " << costs.ops.size()
      << " ops\n";
}

MeasuredCosts measured(const PlannedRun& run, const ProfileArguments& arguments) {
  CostMeasurementOptions options{.link_gbytes_per_second = arguments.link_gbytes_per_s};
  options.steps = arguments.steps.value_or(options.steps);
  options.seed = arguments.run.seed.value_or(options.seed);
  options.progress = [&](std::size_t launches) {
    spdlog::info("{} steps, to time {} of {} ops", options.steps, launches, run.tape->ops().size());
  };
  return measure_costs(run, options);
}

MeasuredCosts modelled(const PlannedRun& run, const ProfileArguments& arguments) {
  const std::string why = "nothing is measured on " + run.target.name;
  require_not_given("--steps", arguments.steps, why);
  require_not_given("--link-gbytes-per-s", arguments.link_gbytes_per_s, why);
  return expected_costs(run);
}

void profile(const ProfileArguments& arguments) {
  check_outputs({}, {{"--output", arguments.output}, {"--engine-timings", arguments.run.engine_timings}},
                files_read(arguments.run));
  RunOptions options = to_run_options(arguments.run);
  options.warn = log_warning;
  if (!options.engine_timings) {
    options.engine_trial_seconds = 0;  // the measurements replace times of engines
  }
  const PlannedRun run = plan_run(options);
  std::cout << run.tape->model() << ", batch " << run.batch() << ", on " << run.target.name << "\n"
            << std::flush;
  const MeasuredCosts costs = run.target.simulated ? modelled(run, arguments) : measured(run, arguments);
  print_costs(std::cout, costs);
  replace_file(arguments.output, to_text(costs));
  std::cout << "profile: " << arguments.output << "\n";
}

}  // namespace

Command add_profile_command(CLI::App& app) {
  const auto arguments = std::make_shared<ProfileArguments>();
  CLI::App* command =
      app.add_subcommand("profile",
                         "Measure the cost of each op with each of its algorithms, for --profile of train "
                         "and plan; on sim:NAME, write the costs of the device model");
  add_options(*command, arguments->run);
  // Every algorithm is measured on one device, under the policy that copies least.
  remove_options(*command,
                 {"policy", "algorithms", "workspace-limit", "engine-trial-seconds", "profile", "graph",
                  "resume", "devices", "machines", "bucket", "reduce-precision", "sync-bn", "step"});
  command->get_option("--model")->required();
  add_option(*command, "steps", arguments->steps,
             "steps to time for each choice of algorithms (default: " +
                 std::to_string(CostMeasurementOptions().steps) + ")");
  add_option(*command, "link-gbytes-per-s", arguments->link_gbytes_per_s,
             "limit copies on cpu to this rate, in 10^9 bytes per second");
  command->add_option("-o,--output", arguments->output, "the file to write")->required()->check(require_text);
  return [arguments] { profile(*arguments); };
}

}  // namespace vdnn
