#include "src/cli/argument_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "src/cli/option_fields.h"
#include "src/cli/option_types.h"
#include "src/cli/options.h"

namespace vdnn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Notes on a machine with four cores.
std::vector<std::string> notes(std::vector<std::string> arguments) {
  CLI::App app("", "vdnn");
  RunArguments run;
  CLI::App* command = app.add_subcommand("plan");
  add_options(*command, run);
  set_option_types(app);
  std::ranges::reverse(arguments);
  arguments.emplace_back("plan");
  app.parse(arguments);
  return argument_notes(*command, 4);
}

TEST(ArgumentNotes, ANoteReportsThatABareUnitIsBinary) {
  EXPECT_THAT(notes({"--memory", "24G"}), ElementsAre("--memory 24G is binary: 24GiB; decimal is 24GB"));
  EXPECT_THAT(notes({"--memory=10M", "--workspace-limit", "1.5K"}),
              ElementsAre(HasSubstr("--memory 10M"), HasSubstr("--workspace-limit 1.5K is binary: 1.5KiB")));
  EXPECT_THAT(notes({"--memory", "24GiB", "--bucket", "24GB", "--host-memory", "4096"}), IsEmpty());
  EXPECT_THAT(notes({"--profile", "file-of-G"}), IsEmpty()) << "no size";
}

TEST(ArgumentNotes, ANoteReportsMoreThreadsThanCores) {
  EXPECT_THAT(notes({"--threads", "5"}), ElementsAre(HasSubstr("--threads 5: this machine has 4 cores")));
  EXPECT_THAT(notes({"--threads", "4"}), IsEmpty());
  EXPECT_THAT(notes({"--threads", "5", "--device", "sim:h200"}), IsEmpty()) << "threads of another machine";
}

// Regression: after options were renamed, types remained that no option had.
TEST(OptionTypes, AreThoseOfOptions) {
  CLI::App app("", "vdnn");
  RunArguments run;
  CLI::App* command = app.add_subcommand("plan");
  add_options(*command, run);
  set_option_types(app);
  EXPECT_EQ(type_of(*command->get_option("--memory")), "SIZE");
  EXPECT_EQ(type_of(*command->get_option("--model")), "MODEL");
  EXPECT_EQ(type_of(*command->get_option("--graph")), "") << "a flag";
  EXPECT_EQ(type_of(*command->get_option("--batch")), "INT");
  for (const std::string type : {"MODEL", "DEVICE", "POLICY", "PREFERENCE", "OPTIMIZER"}) {
    EXPECT_THAT(values_of_type(type), ::testing::Not(IsEmpty())) << type;
  }
  for (const std::string& policy : values_of_type("POLICY")) {
    EXPECT_NO_THROW(parse_policy(policy)) << policy;
  }
}

}  // namespace
}  // namespace vdnn
