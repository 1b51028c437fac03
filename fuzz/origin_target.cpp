// The arguments of a run as a schedule file records them (src/cli/options.cpp), and the network that they
// name.

#include "fuzz/target.h"
#include "src/cli/json_fields.h"
#include "src/cli/options.h"
#include "vdnn/error.h"
#include "vdnn/zoo.h"

namespace vdnn::fuzz {

bool run_origin(Input input) {
  const auto arguments = attempt<DataError>([&] { return from_origin(to_text(input)); });
  if (!arguments) {
    return false;
  }
  const std::string text = to_json(*arguments).dump();
  require(to_json(from_origin(text)).dump() == text, "rewritten arguments have the same text");
  const auto options = attempt<InvalidArgument>([&] { return to_run_options(*arguments); });
  if (options) {
    const auto network = attempt<InvalidArgument>([&] { return make_model(options->model); });
    require(!network || network->batch() == options->model.batch, "a network has the requested batch");
  }
  return true;
}

std::vector<Seed> origin_seeds() {
  const auto seed = [](const std::string& name, const RunArguments& arguments) {
    return Seed{.name = name, .bytes = to_bytes(to_json(arguments).dump())};
  };
  return {seed("defaults", {.model = "lenet"}),
          seed("sgd", {.model = "fashion-vgg",
                       .input = "1x28x28",
                       .classes = 10,
                       .batch = 2,
                       .device = "sim:titan-x",
                       .memory = "1.5GiB",
                       .host_memory = "12GB",
                       .threads = 2,
                       .policy = "all",
                       .algorithms = "memory",
                       .workspace_limit = "64MiB",
                       .momentum = 0.9,
                       .weight_decay = 5e-4,
                       .clip_norm = 1,
                       .seed = 7}),
          seed("device-from-a-file", {.model = "lenet", .device = "sim:/devices/mine.json"}),
          seed("adamw", {.model = "resnet20",
                         .input = "3x32x32",
                         .device = "cpu",
                         .optimizer = "adamw",
                         .beta1 = 0.9,
                         .beta2 = 0.99,
                         .epsilon = 1e-6})};
}

}  // namespace vdnn::fuzz
