// The command's versions, lists, manual, and completion in shells.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/command_test.h"
#include "tests/report/json_schema.h"
#include "vdnn/sim_device.h"
#include "vdnn/zoo.h"

namespace vdnn::manual_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::MatchesRegex;
using ::testing::Not;
using Outcome = testing::CommandOutcome;

std::string file_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

bool is_installed(const std::string& program) {
  return testing::run_process("command -v " + program).status == 0;
}

class SelfDescription : public testing::CommandTest {
 protected:
  std::string output_of(const std::string& arguments) const {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << arguments << "\n" << outcome.log;
    return outcome.out;
  }
  std::vector<json> lines_of(const std::string& arguments, const std::string& type) const {
    const auto schema = testing::read_json(VDNN_DOCS_DIRECTORY "/" + type + ".schema.json");
    std::vector<json> lines;
    std::istringstream text(output_of(arguments + " --json -"));
    for (std::string line; std::getline(text, line);) {
      lines.push_back(json::parse(line));
      EXPECT_THAT(testing::SchemaCheck::errors(schema, lines.back()), IsEmpty()) << line;
    }
    return lines;
  }
  // Names of all commands, as --help lists them.
  std::vector<std::string> commands() const {
    std::istringstream help(output_of("--help"));
    std::vector<std::string> names;
    bool listed = false;
    for (std::string line; std::getline(help, line);) {
      if (listed && line.starts_with("  ") && line[2] != ' ') {
        names.push_back(words_of(line).front());
      }
      listed = listed || line == "Subcommands:";
    }
    return names;
  }
};

// --- versions ----------------------------------------------------------------------------------------------

TEST_F(SelfDescription, VersionNamesTheCommitAndEveryLibrary) {
  const std::string text = output_of("--version");
  EXPECT_TRUE(text.starts_with("vdnn " VDNN_PROJECT_VERSION ", commit ")) << text;
  EXPECT_THAT(text, Not(HasSubstr("commit \n")));
  for (const char* library : {"oneDNN ", "CUDA toolkit ", "cuDNN ", "NCCL ", "MPI "}) {
    EXPECT_THAT(text, HasSubstr(std::string("\n") + library));
  }
}

// Runs the script by which every build records the commit, on a checkout and on a tarball.
TEST_F(SelfDescription, TheCommitIsThatOfACheckoutOrUnknown) {
  const auto header_of = [&](const std::string& source) {
    const testing::Outcome outcome =
        testing::run_process(std::string(VDNN_CMAKE) + " -DSOURCE=" + path(source) +
                             " -DOUTPUT=" + path("commit.h") + " -P " + VDNN_COMMIT_SCRIPT);
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    return read("commit.h");
  };
  fs::create_directory(path("tarball"));
  EXPECT_THAT(header_of("tarball"), HasSubstr("#define VDNN_COMMIT \"unknown\"\n"));
  if (!is_installed("git")) {
    GTEST_SKIP() << "no git";
  }
  const std::string git = "cd " + path("checkout") +
                          " && unset GIT_DIR GIT_WORK_TREE && git -c user.name=a -c user.email=b -c "
                          "commit.gpgsign=false ";
  fs::create_directory(path("checkout"));
  ASSERT_EQ(testing::run_process(git + "init -q .").status, 0);
  ASSERT_EQ(testing::run_process(git + "commit -q --allow-empty -m first").status, 0);
  std::string commit = testing::run_process(git + "rev-parse --short=12 HEAD").text;
  commit.pop_back();
  EXPECT_THAT(header_of("checkout"), HasSubstr("#define VDNN_COMMIT \"" + commit + "\"\n"));
  // The script must not rewrite an unchanged file, or every build would recompile its users.
  const fs::file_time_type long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(path("commit.h"), long_ago);
  header_of("checkout");
  EXPECT_EQ(fs::last_write_time(path("commit.h")), long_ago);
}

// --- lists -------------------------------------------------------------------------------------------------

TEST_F(SelfDescription, DevicesAreThoseThatCanBeNamed) {
  const std::vector<json> devices = lines_of("devices", "device");
  std::set<std::string> names;
  for (const json& device : devices) {
    names.insert(device["device"].get<std::string>());
  }
  EXPECT_THAT(names, Contains("cpu"));
  for (const std::string& name : sim_profile_names()) {
    EXPECT_THAT(names, Contains("sim:" + name));
  }
  EXPECT_THAT(output_of("devices"), HasSubstr("sim:h200"));
}

TEST_F(SelfDescription, ModelsHaveTheSizesThatPlansHave) {
  const std::vector<json> models = lines_of("models", "model");
  ASSERT_EQ(models.size(), model_names().size());
  const std::string table = output_of("models");
  for (std::size_t each = 0; each < models.size(); ++each) {
    EXPECT_EQ(models[each]["model"], model_names()[each]);
    EXPECT_THAT(table, HasSubstr(model_names()[each] + " "));
    EXPECT_EQ(models[each]["parameter_bytes"], models[each]["parameters"].get<std::uint64_t>() * 4);
  }
  const auto find = [&](const std::string& name) -> const json& {
    return *std::ranges::find_if(models, [&](const json& model) { return model["model"] == name; });
  };
  EXPECT_EQ(find("resnet50")["parameters"], 25'557'032);  // docs/zoo.md
  EXPECT_EQ(find("unet")["input"], "1x64x64x64");
  EXPECT_EQ(find("vgg16")["classes"], 1000);
  const Outcome plan = run("plan --model resnet20 --batch 8 --device sim:titan-x --json -");
  EXPECT_EQ(json::parse(plan.out)["feature_map_bytes"],
            8 * find("resnet20")["feature_map_bytes_per_sample"].get<std::uint64_t>());
}

// --- manual ------------------------------------------------------------------------------------------------

TEST_F(SelfDescription, DocsCliIsWhatTheCommandWrites) {
  EXPECT_TRUE(output_of("manual --markdown") == file_text(VDNN_DOCS_DIRECTORY "/cli.md"))
      << "write it anew: vdnn manual --markdown > docs/cli.md";
}

TEST_F(SelfDescription, TheManualHasEveryCommandOptionKeyAndStatus) {
  const std::string manual = output_of("manual --markdown");
  ASSERT_THAT(commands(), IsSupersetOf({"train", "plan", "devices", "models", "completion", "manual"}));
  for (const std::string& command : commands()) {
    EXPECT_THAT(manual, HasSubstr("\n## vdnn " + command + "\n"));
    for (const std::string& word : words_of(output_of(command + " --help"))) {
      if (word.starts_with("--") &&
          word.find_first_not_of("-abcdefghijklmnopqrstuvwxyz0123456789") == std::string::npos) {
        EXPECT_THAT(manual, HasSubstr("`" + word)) << command;
      }
    }
  }
  for (const char* text : {"| 0 | done", "| 3 | does not fit", "| `weights_sha256` |", "| `options.batch` |",
                           "| `policies[].ours.peak_bytes` |", "A line of the type \"planning_op\""}) {
    EXPECT_THAT(manual, HasSubstr(text));
  }
}

TEST_F(SelfDescription, ThereIsAManPageForEachCommandThatManReads) {
  ASSERT_EQ(run("manual --man " + directory_.string()).status, 0);
  std::vector<std::string> pages{"vdnn"};
  for (const std::string& command : commands()) {
    pages.push_back("vdnn-" + command);
  }
  for (const std::string& page : pages) {
    const std::string text = read(page + ".1");
    EXPECT_THAT(text, HasSubstr(".SH NAME")) << page;
    EXPECT_THAT(text, HasSubstr(".SH EXIT STATUS")) << page;
    if (is_installed("groff")) {
      const testing::Outcome outcome =
          testing::run_process("groff -man -Tutf8 -ww " + path(page + ".1") + " >/dev/null");
      EXPECT_EQ(outcome.status, 0) << page;
      EXPECT_EQ(outcome.text, "") << page;
    }
  }
  EXPECT_THAT(read("vdnn-train.1"), HasSubstr("\\fB\\-\\-model\\fR \\fIMODEL\\fR"));
  if (!is_installed("groff")) {
    GTEST_SKIP() << "groff is not installed, so man pages are not formatted";
  }
}

// --- completion --------------------------------------------------------------------------------------------

class BashCompletion : public SelfDescription {
 protected:
  void SetUp() override {
    SelfDescription::SetUp();
    write("script", output_of("completion bash"));
    // Completes a line like bash after `complete -F _vdnn vdnn`.
    write("complete",
          "set -u\n"
          "source \"$1\"\n"
          "COMP_LINE=$2\n"
          "COMP_POINT=${#COMP_LINE}\n"
          "_vdnn\n"
          "printf '%s\\n' \"${COMPREPLY[@]}\"\n");
  }
  std::vector<std::string> offered(const std::string& line) const {
    const testing::Outcome outcome =
        testing::run_process("cd " + directory_.string() + " && bash complete ./script '" + line + "'");
    EXPECT_EQ(outcome.status, 0) << line << outcome.text;
    return words_of(outcome.text);
  }
};

TEST_F(BashCompletion, OffersCommandsAndOptions) {
  EXPECT_THAT(offered("vdnn "), IsSupersetOf({"train", "plan", "max-batch", "devices", "--version"}));
  EXPECT_THAT(offered("vdnn tr"), ElementsAre("train"));
  EXPECT_THAT(offered("vdnn plan --print"), ElementsAre("--print-schedule"));
  EXPECT_THAT(offered("vdnn plan "), IsSupersetOf({"--model", "--json", "--help"}));
  EXPECT_THAT(offered("vdnn plan --epo"), IsEmpty()) << "an option of train";
  EXPECT_THAT(offered("vdnn train --epo"), ElementsAre("--epochs"));
  for (const std::string& command : commands()) {
    EXPECT_THAT(offered("vdnn " + command + " --h"), Contains("--help")) << command;
  }
}

TEST_F(BashCompletion, OffersValues) {
  EXPECT_THAT(offered("vdnn plan --model "), ::testing::UnorderedElementsAreArray(model_names()));
  EXPECT_THAT(offered("vdnn plan --batch 8 --model resnet1"),
              ElementsAre("resnet18", "resnet152", "resnet110"));
  EXPECT_THAT(offered("vdnn train --policy=o"), ElementsAre("optimal"));
  EXPECT_THAT(offered("vdnn plan --memory "), IsEmpty()) << "no list of all sizes";
  EXPECT_THAT(offered("vdnn completion "), IsSupersetOf({"bash", "zsh", "fish"}));
  EXPECT_THAT(offered("vdnn plan --model lenet --json scr"), ElementsAre("script")) << "files";
}

// Bash replaces only the text after the last colon.
TEST_F(BashCompletion, OffersDevicesByWhatFollowsTheColon) {
  EXPECT_THAT(offered("vdnn plan --device "), IsSupersetOf({"auto", "cpu", "cuda:0", "sim:titan-x"}));
  EXPECT_THAT(offered("vdnn plan --device sim:tit"), ElementsAre("titan-x"));
  EXPECT_THAT(offered("vdnn plan --device=sim:h"), ElementsAre("h100", "h200"));
}

TEST_F(BashCompletion, LeavesTheProgramThatIsRunToItself) {
  EXPECT_THAT(offered("vdnn run --memory 1GiB -- ./scr"), ElementsAre("./script"));
}

class ShellCompletion : public SelfDescription, public ::testing::WithParamInterface<std::string> {};

INSTANTIATE_TEST_SUITE_P(Shells, ShellCompletion, ::testing::Values("bash", "zsh", "fish"),
                         [](const auto& test) { return test.param; });

TEST_P(ShellCompletion, HasEveryCommandAndIsNoSyntaxError) {
  const std::string script = output_of("completion " + GetParam());
  for (const std::string& command : commands()) {
    EXPECT_THAT(script, HasSubstr(command));
  }
  EXPECT_THAT(script, HasSubstr("sim:titan-x"));
  if (!is_installed(GetParam())) {
    GTEST_SKIP() << "no " << GetParam();
  }
  write("script", script);
  const testing::Outcome outcome = testing::run_process(GetParam() + " -n " + path("script"));
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_EQ(outcome.text, "");
}

}  // namespace
}  // namespace vdnn::manual_test
