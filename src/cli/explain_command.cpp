#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "src/cli/commands.h"
#include "src/cli/option_fields.h"
#include "src/cli/options.h"
#include "src/cli/output.h"
#include "src/cli/resume.h"
#include "src/cli/summary.h"
#include "src/report/explanation_output.h"
#include "src/report/json_lines.h"

namespace vdnn {

namespace {

struct ExplainArguments {
  RunArguments run;
  std::vector<std::string> values;
  std::vector<std::string> ops;
  OutputArguments outputs;
};

// Prints the explanation and returns its JSON lines.
std::vector<nlohmann::ordered_json> explain_plan(std::ostream& out, const PlannedRun& run) {
  const Explanation explanation = explain(run);
  print(out, run, explanation);
  return to_json(run, explanation);
}

std::vector<nlohmann::ordered_json> explain_parts(std::ostream& out, const PlannedRun& run,
                                                  const ExplainArguments& arguments) {
  std::vector<ValueId> values;
  for (const std::string& name : arguments.values) {
    const std::vector<ValueId> found = find_values(*run.tape, name);
    std::ranges::copy_if(found, std::back_inserter(values), [&](ValueId value) {
      return std::ranges::find(values, value) == values.end();  // explains a value once, also if its name and
                                                                // its layer select it
    });
  }
  std::vector<OpId> ops;
  for (const std::string& name : arguments.ops) {
    if (const OpId op = find_op(*run.tape, name); std::ranges::find(ops, op) == ops.end()) {
      ops.push_back(op);
    }
  }
  std::vector<nlohmann::ordered_json> lines;
  for (const ValueId id : values) {
    const ExplainedValue value = explain_value(run, id);
    print(out, run, value);
    lines.push_back(to_json(run, value));
  }
  for (const OpId id : ops) {
    const ExplainedOp op = explain_op(run, id);
    print(out, run, op);
    lines.push_back(to_json(run, op));
  }
  return lines;
}

void explain(const ExplainArguments& arguments) {
  check_outputs(arguments.outputs, {{"--engine-timings", arguments.run.engine_timings}},
                files_read(arguments.run));
  const std::optional<Checkpoint> checkpoint = open_checkpoint(arguments.run);
  const RunArguments run_arguments = resumed(arguments.run, checkpoint);
  RunOptions options = to_run_options(run_arguments);
  options.trace_prediction = true;
  const PlannedRun run = plan_from(checkpoint, options);
  std::ostream& out = people(arguments.outputs);
  print_run(out, run);
  const Scaling scaling = predict_scaling(run);
  print_prediction(out, run, scaling);
  const bool whole = arguments.values.empty() && arguments.ops.empty();
  const std::vector<nlohmann::ordered_json> lines =
      whole ? explain_plan(out, run) : explain_parts(out, run, arguments);
  if (!arguments.outputs.json.empty()) {
    const nlohmann::ordered_json summary = plan_summary(run, scaling, in_force(run_arguments, run));
    write_output([&] {
      JsonLines json(arguments.outputs.json);
      for (const nlohmann::ordered_json& line : lines) {
        json.write(line);
      }
      json.write(summary);
    });
  }
}

}  // namespace

Command add_explain_command(CLI::App& app) {
  const auto arguments = std::make_shared<ExplainArguments>();
  CLI::App* command = app.add_subcommand(
      "explain", "Explain a plan: its peak, its smallest budget, what more memory would gain, its time");
  add_options(*command, arguments->run);
  remove_options(*command, {"step"});
  command->get_option("--model")->required();
  command
      ->add_option("--value", arguments->values,
                   "explain this value, or the values that this layer makes, instead; may be repeated")
      ->check(require_text);
  command->add_option("--op", arguments->ops, "explain this op instead; may be repeated")
      ->check(require_text);
  add_option(*command, "json", arguments->outputs.json, "write JSON lines: the explanations, then a summary");
  return [arguments] { explain(*arguments); };
}

}  // namespace vdnn
