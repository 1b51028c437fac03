// Misspelt names of options (docs/known_defects.md): every parser refuses unknown names, with the name in its
// error.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/data/samples.h"
#include "vdnn/dataset.h"
#include "vdnn/error.h"
#include "vdnn/learning_rate.h"
#include "vdnn/planned_run.h"
#include "vdnn/size.h"

namespace vdnn::testing {
namespace {

using ::testing::HasSubstr;

RunOptions lenet() {
  return {.model = {.model = "lenet", .batch = 2}, .device = "sim:titan-x"};
}

void plan_with(const std::function<void(RunOptions&)>& change) {
  RunOptions options = lenet();
  change(options);
  plan_run(options);
}

void open_data(const std::string& text) {
  open_dataset(dataset_options(plan_run(lenet()).own_network(), text, 1));
}

struct UnknownName {
  std::string name;
  std::function<void()> read;
};

// Includes known names with a suffix. A parser that compares only the beginning of a name would accept these.
std::vector<UnknownName> unknown_names() {
  std::vector<UnknownName> result{
      {"lenin", [] { plan_with([](RunOptions& options) { options.model.model = "lenin"; }); }},
      {"abacus", [] { plan_with([](RunOptions& options) { options.device = "sim:abacus"; }); }},
      {"tpu", [] { plan_with([](RunOptions& options) { options.device = "tpu"; }); }},
      {"conv9.forward",
       [] {
         plan_with([](RunOptions& options) {
           const auto tape = plan_run(lenet()).tape;
           for (const Op& op : tape->ops()) {
             options.recorded_algorithms[op.name] = op.algorithms.front().name;
           }
           options.recorded_algorithms["conv9.forward"] = "direct";
         });
       }},
      {"fc9.y", [] { plan_with([](RunOptions& options) { options.training.results = {"fc9.y"}; }); }}};
  for (const std::string text : {"mnist-of-letters", "synthetic:sharp", "cifar100:/tmp"}) {
    result.push_back({text, [text] { open_data(text); }});
  }
  for (const std::string text : {"wavy", "cosine:1:2:3", "constant,colour:red"}) {
    result.push_back({text, [text] {
                        LearningRateSchedule(text,
                                             {.base_rate = 0.1, .total_steps = 10, .steps_per_epoch = 5});
                      }});
  }
  for (const std::string text : {"5MiBytes", "5 Mi", "5GiB!"}) {
    result.push_back({text, [text] { parse_size(text); }});
  }
  return result;
}

// Regression: if RunOptions, not a checkpoint, recorded an algorithm for an op that the network does not
// have, it was ignored.
TEST(KnownDefects, UnknownNamesAreRefusedByName) {
  plan_run(lenet());
  open_data("synthetic");
  for (const UnknownName& unknown : unknown_names()) {
    EXPECT_THAT(problem<InvalidArgument>(unknown.read), HasSubstr(unknown.name));
  }
}

}  // namespace
}  // namespace vdnn::testing
