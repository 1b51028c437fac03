// Runs every command line that README, the pages in docs/ and the examples show. A line is run as it stands
// or with a replacement below, or it is listed below with the reason why it is not run.

#include "tests/docs/command_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/process.h"
#include "tests/temporary_directory.h"

namespace vdnn {
namespace {

namespace fs = std::filesystem;
using testing::CommandLine;
using ::testing::ElementsAre;
using testing::words_of;

const fs::path kRoot = VDNN_SOURCE_DIR;

// --- replacements of command lines -------------------------------------------------------------------------

// A whole command line, and the command line that runs instead.
struct Replacement {
  std::string_view line;
  std::string_view run;
  std::string_view reason;
};

constexpr std::string_view kMention = "the page shows a command and one option; the rest is added";
constexpr std::string_view kShorter = "a test must not train or measure for long";

constexpr std::array kReplacements{
    Replacement{"vdnn train --model lenet --data fashion-mnist --epochs 1 --memory 10MiB --trace trace.json "
                "--json run.json",
                "vdnn train --model lenet --data fashion-mnist --steps 2 --memory 10MiB --trace trace.json "
                "--json run.json",
                kShorter},
    Replacement{
        "vdnn train --model resnet20 --data synthetic --epochs 2 --tensorboard runs/resnet20",
        "vdnn train --model resnet20 --data synthetic --steps 2 --batch 2 --tensorboard runs/resnet20",
        kShorter},
    Replacement{"vdnn train --model resnet20 --data synthetic --epochs 2 --metrics-port 9100",
                "vdnn train --model resnet20 --data synthetic --steps 2 --batch 2 --metrics-port 0",
                "a test must not train for long, nor use a port that may be another program's"},
    Replacement{"vdnn profile --model resnet20 --threads 1 -o costs.json",
                "vdnn profile --model resnet20 --threads 1 -o costs.json --batch 2 --steps 5", kShorter},
    Replacement{"vdnn plan --model resnet20 --threads 1 --policy all --profile costs.json",
                "vdnn plan --model resnet20 --threads 1 --policy all --profile costs.json --batch 2",
                "uses the profile above"},
    Replacement{"vdnn train --model resnet20 --data cifar10:DIR --epochs 9 --memory 24MiB --replan-after 20",
                "vdnn train --model resnet20 --data cifar10:cifar10 --epochs 7 --batch 2 --memory 24MiB "
                "--replan-after 20",
                kShorter},
    Replacement{"vdnn train --model vgg16 --device cuda:0 --data synthetic --steps 100 --engine-timings "
                "times.json --tf32",
                "vdnn plan --model vgg16 --device sim:a100 --tf32",
                "there is no GPU; tests/train/ tests these options on fakes"},
    Replacement{
        "vdnn train --model resnet20 --data cifar10:DIR --augment --epochs 90 --optimizer sgd --lr 0.1 "
        "--lr-schedule step:30e,warmup:1e --save run.safetensors --save-every 500",
        "vdnn train --model resnet20 --data cifar10:cifar10 --augment --epochs 1 --optimizer sgd --lr "
        "0.1 --lr-schedule step:30e,warmup:1e --save run.safetensors --save-every 500",
        kShorter},
    Replacement{
        "vdnn train --model resnet20 --data cifar10:DIR --augment --epochs 90 --optimizer sgd --lr 0.1 "
        "--lr-schedule step:30e,warmup:1e --resume run.safetensors --save run.safetensors",
        "vdnn train --model resnet20 --data cifar10:cifar10 --augment --epochs 2 --optimizer sgd --lr "
        "0.1 --lr-schedule step:30e,warmup:1e --resume run.safetensors --save run.safetensors",
        kShorter},
    Replacement{"vdnn max-batch --model vgg19 --memory 24GiB --device sim:rtx4090 --overhead 10%",
                "vdnn max-batch --model lenet --memory 24MiB --device sim:rtx4090 --overhead 10%", kShorter},
    Replacement{"vdnn sweep --model resnet50 --batch 64 --device sim:titan-x --svg sweep.svg",
                "vdnn sweep --model resnet50 --batch 64 --device sim:titan-x --svg sweep.svg --points 2",
                kShorter},
    Replacement{
        "vdnn sweep --model resnet50 --batch 64 --device sim:h100 --precision fp32,tf32,bf16 --svg sweep.svg",
        "vdnn sweep --model lenet --batch 64 --device sim:h100 --precision fp32,tf32,bf16 --svg sweep.svg",
        kShorter},
    Replacement{"vdnn sweep --model unet --input 1x128x128x128 --batch 2 --device sim:h100 --precision "
                "fp32,tf32,bf16 --policy optimal,none --svg precision.svg",
                "vdnn sweep --model lenet --device sim:h100 --precision fp32,tf32,bf16 --policy optimal,none "
                "--svg precision.svg",
                "tests/cli/cli_test.cpp makes the page's picture"},
    Replacement{
        "vdnn sweep --model resnet50 --batch 128 --device sim:h100 --precision bf16 --peers --points 10 "
        "--svg peers_resnet50_h100.svg",
        "vdnn sweep --model lenet --device sim:h100 --precision bf16 --peers --points 2 "
        "--svg peers_resnet50_h100.svg",
        kShorter},
    Replacement{
        "vdnn sweep --model resnet50 --batch 128 --device sim:rtx4090 --precision bf16 --peers --points 10 "
        "--svg peers_resnet50_rtx4090.svg",
        "vdnn sweep --model lenet --device sim:rtx4090 --precision bf16 --peers --points 2 "
        "--svg peers_resnet50_rtx4090.svg",
        kShorter},
    Replacement{
        "vdnn sweep --model unet --input 1x128x128x128 --batch 2 --device sim:h100 --precision bf16 --peers "
        "--points 10 --svg peers_unet_h100.svg",
        "vdnn sweep --model lenet --device sim:h100 --precision bf16 --peers --points 2 "
        "--svg peers_unet_h100.svg",
        "tests/cli/cli_test.cpp makes the page's picture"},
    Replacement{
        "vdnn sweep --model unet --input 1x128x128x128 --batch 2 --device sim:rtx4090 --precision bf16 "
        "--peers --points 10 --svg peers_unet_rtx4090.svg",
        "vdnn sweep --model lenet --device sim:rtx4090 --precision bf16 --peers --points 2 "
        "--svg peers_unet_rtx4090.svg",
        "tests/cli/cli_test.cpp makes the page's picture"},
    Replacement{"vdnn sweep --peers", "vdnn sweep --model lenet --device sim:h100 --peers --points 2",
                kMention},
    Replacement{"vdnn plan --report", "vdnn plan --model lenet --report plan.html", kMention},
    Replacement{"vdnn plan --report F.html", "vdnn plan --model lenet --report F.html", kMention},
    Replacement{"vdnn plan --memory", "vdnn plan --model lenet --memory 1GiB", kMention},
    Replacement{"vdnn plan --ops", "vdnn plan --model lenet --ops --json F", kMention},
    Replacement{"vdnn plan --schedule", "vdnn plan --model lenet --schedule S", kMention},
    Replacement{"vdnn train --replan-after",
                "vdnn train --model lenet --batch 2 --data synthetic --steps 7 --replan-after 6", kMention},
    Replacement{"vdnn plan --ops --json F", "vdnn plan --model lenet --ops --json F", kMention},
    Replacement{"vdnn plan --schedule S", "vdnn plan --model lenet --schedule S", kMention},
    Replacement{"vdnn plan --devices 4 --machines 2 --device sim:v100-16",
                "vdnn plan --model lenet --devices 4 --machines 2 --device sim:v100-16", kMention},
    Replacement{"vdnn plan --devices N --machines M --accumulate K",
                "vdnn plan --model lenet --devices 3 --machines 2 --accumulate 2 --device sim:v100-16",
                kMention},
    Replacement{"vdnn train --learned FILE",
                "vdnn train --model lenet --batch 2 --data synthetic --steps 7 --learned FILE", kMention},
    Replacement{"vdnn train --replan-after N",
                "vdnn train --model lenet --batch 2 --data synthetic --steps 7 --replan-after 6", kMention},
    Replacement{"vdnn train --precision bf16",
                "vdnn train --model lenet --batch 2 --data synthetic --steps 2 --precision bf16", kMention},
    Replacement{"vdnn profile --device sim:NAME", "vdnn profile --model lenet --device sim:h200 -o FILE",
                kMention},
    Replacement{"vdnn manual --markdown > docs/cli.md", "vdnn manual --markdown > cli.md",
                "the test must not change the page"},
    Replacement{"vdnn COMMAND --help", "vdnn train --help", kMention}};

// Command lines that are not run, by their beginning. Scripts of the tree must exist and have the options of
// the line.
struct NotRun {
  std::string_view begins;
  std::string_view reason;
};

constexpr std::array kNotRun{
    NotRun{"scripts/setup", "installs packages"},
    NotRun{"scripts/bundle-deps", "downloads packages"},
    NotRun{"scripts/demo", "trains for a minute"},
    NotRun{"scripts/test", "runs this test"},
    NotRun{"scripts/count-cases", "scripts/test runs it"},
    NotRun{"scripts/fuzz", "takes minutes"},
    NotRun{"scripts/package", "builds everything; tests/install/package_test.sh runs it on this build"},
    NotRun{"scripts/wheel", "builds a library and asks auditwheel"},
    NotRun{"scripts/torch-for-cpu", "downloads packages"},
    NotRun{"scripts/record-steps", "trains in PyTorch for a minute, and writes into the tree"},
    NotRun{"scripts/gpu-check", "builds everything, for a GPU"},
    NotRun{"bench/", "measures for minutes; another test runs each program briefly"},
    NotRun{"build/release/bench/", "measures for minutes; another test runs each program briefly"},
    NotRun{"build/release/tests/", "is a test itself"},
    NotRun{"cmake ", "configures, builds or installs; tests/install/ does this"},
    NotRun{"ctest ", "runs this test"},
    NotRun{"clang-format", "a tool of scripts/test --all"},
    NotRun{"clang-tidy", "a tool of scripts/test --all"},
    NotRun{"srun ", "there is no Slurm; the started command is that of mpirun"},
    NotRun{"mpirun ", "starts ranks; tests/cli/ranks_test.cpp does this"},
    NotRun{"vdnn train --model resnet20 --data cifar10:DIR --epochs 9 --devices 4",
           "starts ranks; tests/cli/ranks_test.cpp does this"},
    NotRun{"vdnn train --devices", "starts ranks; tests/cli/ranks_test.cpp does this"},
    NotRun{"vdnn run", "runs a CUDA program; tests/examples/dropin_examples_test.cpp does this"},
    NotRun{"python3 -m vdnn.torch.door", "compiles against PyTorch; tests/torch does this"},
    NotRun{"python3 examples/", "tests/examples/dropin_examples_test.cpp runs it"}};

std::optional<std::string> replacement_of(const std::string& line) {
  const auto* const found = std::ranges::find(kReplacements, line, &Replacement::line);
  return found == kReplacements.end() ? std::nullopt : std::optional(std::string(found->run));
}

const NotRun* reason_not_to_run(const std::string& line) {
  const auto* const found =
      std::ranges::find_if(kNotRun, [&](const NotRun& each) { return line.starts_with(each.begins); });
  return found == kNotRun.end() ? nullptr : found;
}

// Whether the line is a command without arguments.
bool names_a_command_alone(const std::string& line) {
  const std::vector<std::string> words = words_of(line);
  return words.size() == 2 && words.front() == "vdnn" && !words.back().starts_with("-");
}

// --- pages -------------------------------------------------------------------------------------------------

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> pages() {
  std::vector<std::string> paths{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "fuzz/corpus/README.md"};
  for (const char* folder : {"docs", "examples", "share/devices", "share/engines", "share/steps"}) {
    for (const auto& entry : fs::directory_iterator(kRoot / folder)) {
      const std::string extension = entry.path().extension();
      if (extension == ".md" || folder == std::string("examples")) {
        paths.push_back((fs::path(folder) / entry.path().filename()).string());
      }
    }
  }
  std::ranges::sort(paths);
  return paths;
}

// Returns each command line once, with its first place.
std::vector<CommandLine> command_lines_of(const std::string& page) {
  const std::string text = read_file(kRoot / page);
  const std::vector<CommandLine> all =
      page.ends_with(".md") ? testing::command_lines_of_page(text) : testing::command_lines_of_source(text);
  std::vector<CommandLine> lines;
  for (const CommandLine& line : all) {
    if (std::ranges::find(lines, line.text, &CommandLine::text) == lines.end()) {
      lines.push_back(line);
    }
  }
  return lines;
}

// --- running -----------------------------------------------------------------------------------------------

// Expects the script of the tree that the line runs to exist and to know the line's options.
void expect_there(const std::string& line) {
  const std::vector<std::string> words = words_of(line);
  if (!words.front().starts_with("scripts/") && words.front() != "bench/run") {
    return;
  }
  ASSERT_TRUE(fs::exists(kRoot / words.front())) << line;
  const std::string script = read_file(kRoot / words.front());
  for (const std::string& word : words) {
    if (word.starts_with("--")) {
      EXPECT_NE(script.find(word), std::string::npos) << line << ": " << word;
    }
  }
}

class CommandLines : public testing::TemporaryDirectory, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    TemporaryDirectory::SetUp();
    fs::create_directory(directory_ / "bin");
    fs::create_symlink(VDNN_COMMAND, directory_ / "bin/vdnn");
    fs::create_symlink(kRoot / "share", directory_ / "share");
    make_cifar10();
  }

  testing::Outcome run(const std::string& line) const {
    return testing::run_process("cd " + directory_.string() + " && PATH=" + (directory_ / "bin").string() +
                                ":$PATH " + line);
  }

 private:
  // Makes grey images of two classes, just enough for an epoch of one batch of 64.
  void make_cifar10() const {
    fs::create_directory(directory_ / "cifar10");
    std::string records;
    for (int each = 0; each < 16; ++each) {
      records += static_cast<char>(each % 2);
      records.append(std::size_t{3} * 32 * 32, static_cast<char>(100 + each % 2));
    }
    for (const char* file :
         {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
      write(std::string("cifar10/") + file + ".bin", records);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Pages, CommandLines, ::testing::ValuesIn(pages()), [](const auto& test) {
  return std::regex_replace(test.param, std::regex("[^A-Za-z0-9]"), "_");
});

TEST_P(CommandLines, AreRun) {
  for (const CommandLine& line : command_lines_of(GetParam())) {
    const std::string place = GetParam() + ":" + std::to_string(line.line) + ": ";
    std::string command = line.text;
    if (const std::optional<std::string> other = replacement_of(line.text)) {
      command = *other;
    } else if (names_a_command_alone(line.text)) {
      command += " --help";
    } else if (reason_not_to_run(line.text) != nullptr) {
      expect_there(line.text);
      continue;
    }
    ASSERT_TRUE(command.starts_with("vdnn ")) << place << "cannot be run and is not listed: " << line.text;
    if (!fs::exists("/usr/share/datasets/fashion-mnist")) {
      command = std::regex_replace(command, std::regex("fashion-mnist"), "synthetic");
    }
    const testing::Outcome outcome = run(command);
    EXPECT_EQ(outcome.status, 0) << place << line.text << "\nran: " << command << "\n" << outcome.text;
  }
}

// The tables must not contain command lines that no page has.
TEST(CommandLineTables, NameLinesOfPages) {
  std::set<std::string> replaced;
  std::set<std::string_view> not_run;
  for (const std::string& page : pages()) {
    for (const CommandLine& line : command_lines_of(page)) {
      replaced.insert(line.text);
      if (const NotRun* reason = reason_not_to_run(line.text)) {
        not_run.insert(reason->begins);
      }
    }
  }
  for (const Replacement& each : kReplacements) {
    EXPECT_TRUE(replaced.contains(std::string(each.line))) << each.line;
  }
  for (const NotRun& each : kNotRun) {
    EXPECT_TRUE(not_run.contains(each.begins)) << each.begins;
  }
}

// --- the reader --------------------------------------------------------------------------------------------

std::vector<std::string> texts(const std::vector<CommandLine>& lines) {
  std::vector<std::string> result;
  std::ranges::transform(lines, std::back_inserter(result), &CommandLine::text);
  return result;
}

TEST(CommandLineReader, FindsBlocksAndSpans) {
  const std::string page =
      "Say `vdnn plan --memory\n1GiB`, `vdnn`, `vdnn::Session` or `bench/run`; not `bench/run.h`.\n"
      "```\nvdnn  train --a b   # why\nvdnn train \\\n    --c && vdnn replay s\nfit: vdnn x\n```\n"
      "```cpp\nvdnn plan in a program\n```\n"
      "\n    vdnn sweep --d\n\n`vdnn run [options]`\n";
  const std::vector<CommandLine> lines = testing::command_lines_of_page(page);
  EXPECT_THAT(texts(lines), ElementsAre("vdnn plan --memory 1GiB", "bench/run", "vdnn train --a b",
                                        "vdnn train --c", "vdnn replay s", "vdnn sweep --d"));
  EXPECT_EQ(lines[0].line, 1);
  EXPECT_EQ(lines[2].line, 4);
  EXPECT_EQ(lines[5].line, 13);
}

TEST(CommandLineReader, FindsCommentsOfSources) {
  EXPECT_THAT(texts(testing::command_lines_of_source(
                  "// For `vdnn run --summary 1 -- it`.\n#   cmake -S a\nint vdnn = cmake(x);\n")),
              ElementsAre("vdnn run --summary 1 -- it", "cmake -S a"));
}

}  // namespace
}  // namespace vdnn
