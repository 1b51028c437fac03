// `vdnn train` in several ranks, started as users do. It uses the predicted memory, and ends with the weights
// of one rank that accumulates. Any failure ends the job on all ranks with a message that names it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "src/base/environment.h"
#include "tests/crash/command.h"
#include "tests/extent.h"
#include "tests/mpirun.h"
#include "tests/temporary_directory.h"

namespace vdnn {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

namespace fs = std::filesystem;

constexpr int kUsage = 2;
constexpr int kDoesNotFit = 3;
constexpr int kNoDevice = 4;
constexpr int kDiverged = 5;

class Ranks : public testing::TemporaryDirectory {
 protected:
  void SetUp() override {
    testing::TemporaryDirectory::SetUp();
    if (const std::string why = testing::why_no_mpirun(); !why.empty()) {
      GTEST_SKIP() << why;
    }
  }

  std::string path(const std::string& name) const { return (directory_ / name).string(); }

  // By default, trains a network with dropout and without batch normalisation.
  static std::string train(const std::string& arguments) {
    std::string command = std::string(VDNN_COMMAND) + " train " + arguments;
    for (const std::string usual : {"--device cpu", "--model fashion-vgg", "--data synthetic", "--threads 1",
                                    "--memory 64MiB", "--batch 4"}) {
      if (arguments.find(usual.substr(0, usual.find(' ') + 1)) == std::string::npos) {
        command += " " + usual;
      }
    }
    return command;
  }

  static testing::Outcome run(const std::string& command) {
    return testing::run_process(testing::in_ranks_environment(command));
  }

  // Runs `vdnn train`, which must succeed, and returns its summary.
  json trained(const std::string& arguments) const {
    const testing::Outcome outcome = run(train(arguments + " --json " + path("json")));
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    std::ifstream file(path("json"));
    json last;
    for (std::string line; std::getline(file, line);) {
      last = json::parse(line);
    }
    return last;
  }
};

class RankPolicies : public Ranks, public ::testing::WithParamInterface<std::string> {};

TEST_P(RankPolicies, FourRanksHaveTheBitsOfOneThatAccumulatesInTheMemoryPredicted) {
  const std::string options = "--steps 30 --clip-norm 1 --policy " + GetParam();
  const json one = trained(options + " --accumulate 4");
  const json four = trained(options + " --devices 4 --deterministic --check-ranks 10 --bucket 200KiB");
  EXPECT_EQ(four["weights_sha256"], one["weights_sha256"]);
  EXPECT_EQ(one["peak_bytes"], one["predicted_peak_bytes"]);
  EXPECT_THAT(four["rank_peak_bytes"], AllOf(SizeIs(4), Each(four["predicted_peak_bytes"])));
}

// In little memory, `optimal` chooses other algorithms for ranks that accumulate than for ranks that do not.
// --keep-algorithms prevents this.
constexpr const char* kTight = "optimal --memory 12MiB --keep-algorithms";

INSTANTIATE_TEST_SUITE_P(Policies, RankPolicies,
                         ::testing::Values("baseline", "none", "conv", "all", "dyn", "optimal", kTight),
                         [](const auto& test) { return test.param == kTight ? "tight" : test.param; });

// Two ranks sum in another order than one rank, so the results differ in rounding.
TEST_F(Ranks, TwoRanksThatAccumulateComeNear) {
  const json one = trained("--steps 10 --accumulate 4");
  const json two = trained("--steps 10 --devices 2 --accumulate 2");
  EXPECT_NE(two["weights_sha256"], one["weights_sha256"]);
  EXPECT_NEAR(two["loss"].get<double>(), one["loss"].get<double>(), 1e-3);
}

// Resnet-20 has batch normalisation after every convolution.
TEST_F(Ranks, SynchronizedNormalizationComesNearOneLargeBatch) {
  const std::string options = "--steps 3 --model resnet20 ";
  const json one = trained(options + "--batch 8");
  const json four = trained(options + "--batch 2 --devices 4 --sync-bn --check-ranks 1");
  EXPECT_NEAR(four["loss"].get<double>(), one["loss"].get<double>(), 1e-4);
  EXPECT_THAT(four["rank_peak_bytes"], AllOf(SizeIs(4), Each(four["predicted_peak_bytes"])));
  EXPECT_EQ(four["options"]["sync_bn"], true);
}

// The sums differ from those in fp32, but are the same on all ranks. A run that resumes with another type
// reports the change.
TEST_F(Ranks, NarrowReductionsComeNearThoseInFp32) {
  const std::string options = "--devices 2 --clip-norm 1 --steps ";
  const json fp32 = trained(options + "8");
  const json bf16 = trained(options + "8 --reduce-precision bf16 --check-ranks 1 --save " + path("bf16"));
  EXPECT_NE(bf16["weights_sha256"], fp32["weights_sha256"]);
  EXPECT_NEAR(bf16["loss"].get<double>(), fp32["loss"].get<double>(), 0.02);
  EXPECT_THAT(bf16["rank_peak_bytes"], AllOf(SizeIs(2), Each(bf16["predicted_peak_bytes"])));
  const testing::Outcome otherwise = run(train(options + "9 --resume " + path("bf16")));
  EXPECT_EQ(otherwise.status, 0) << otherwise.text;
  EXPECT_THAT(otherwise.text,
              HasSubstr("gradients summed over devices in bf16, and training continues with fp32"));
  const testing::Outcome alike = run(train(options + "9 --reduce-precision bf16 --resume " + path("bf16")));
  EXPECT_EQ(alike.status, 0) << alike.text;
  EXPECT_THAT(alike.text, Not(HasSubstr("gradients summed")));
}

// Regression: ranks drew the progress bar, because mpirun gives them a terminal.
TEST_F(Ranks, DrawNothingWhereNobodyLooks) {
  const testing::Outcome outcome = run(train("--steps 4 --devices 2"));
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("step 4/"), Not(HasSubstr("\033"))));
}

TEST_F(Ranks, GoOnFromTheCheckpointOfAnotherNumberOfRanks) {
  const std::string checkpoint = path("checkpoint");
  const json straight = trained("--steps 12 --devices 4");
  trained("--steps 6 --devices 4 --save " + checkpoint);
  const json resumed = trained("--steps 12 --accumulate 4 --resume " + checkpoint);
  EXPECT_EQ(resumed["weights_sha256"], straight["weights_sha256"]);
}

// Regression: no rank warned when a resumed run had another global batch than its checkpoint.
TEST_F(Ranks, OneOfThemWarnsOfAnotherGlobalBatch) {
  const std::string checkpoint = path("checkpoint");
  trained("--steps 1 --devices 2 --save " + checkpoint);
  const std::string again = "--steps 2 --resume " + checkpoint;
  const std::string warning = "global batch 8, and training continues with 16";
  const std::string with_another = run(train(again + " --devices 2 --accumulate 2")).text;
  ASSERT_THAT(with_another, HasSubstr(warning));
  EXPECT_EQ(with_another.find(warning), with_another.rfind(warning)) << with_another;
  EXPECT_THAT(run(train(again + " --accumulate 2")).text, Not(HasSubstr("global batch 8, ")));
}

TEST_F(Ranks, SynchronizedNormalizationGoesOnFromOrdinaryAndTheOtherWayAround) {
  for (const bool first : {false, true}) {
    const auto with = [](bool synchronized) {
      return std::string(" --model resnet20 --batch 2 --devices 2") + (synchronized ? " --sync-bn" : "");
    };
    const std::string checkpoint = path(first ? "synchronized" : "ordinary");
    trained("--steps 1 --save " + checkpoint + with(first));
    const testing::Outcome outcome =
        run(train("--steps 2 --check-ranks 1 --resume " + checkpoint + with(!first)));
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    EXPECT_THAT(outcome.text,
                HasSubstr(first ? "over the batches of all ranks, and training continues with each rank's"
                                : "over each rank's own batch, and training continues with the batches"));
  }
}

TEST_F(Ranks, EndWithTheSameStepWhereTheyDivergeAndLeaveTheCheckpoint) {
  trained("--devices 2 --steps 3 --save " + path("checkpoint"));
  const std::string before = read("checkpoint");
  const testing::Outcome outcome = run(train("--devices 2 --steps 20 --lr 1e28 --find-nan --resume " +
                                             path("checkpoint") + " --save " + path("checkpoint")));
  EXPECT_EQ(outcome.status, kDiverged) << outcome.text;
  const std::string message = "step 5 has diverged";
  EXPECT_THAT(outcome.text, AllOf(HasSubstr(message), HasSubstr("repeating steps 4 to 5"),
                                  HasSubstr("step 5, rank 0, op ")));
  EXPECT_EQ(outcome.text.find(message), outcome.text.rfind(message)) << outcome.text;
  EXPECT_EQ(read("checkpoint"), before);
}

// The rank that reads the checkpoint fails while the other ranks replay or wait for the replay.
TEST_F(Ranks, EndAsDivergedWhereTheReplayOfOneFails) {
  testing::set_ranks_environment();
  ::setenv("ASAN_OPTIONS", (environment("ASAN_OPTIONS").value_or("") + ":verify_asan_link_order=0").c_str(),
           1);
  const testing::Outcome outcome = testing::run_process(
      "LD_PRELOAD=" VDNN_UNREADABLE_FILE " VDNN_TEST_UNREADABLE=" + path("checkpoint") +
      " timeout -k 10 300 " +
      train("--devices 2 --steps 20 --lr 1e28 --find-nan --save-every 1 --save " + path("checkpoint")));
  EXPECT_EQ(outcome.status, kDiverged) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("step 2 has diverged"), HasSubstr("--find-nan: "),
                                  HasSubstr("ends the job"), HasSubstr(path("checkpoint"))));
}

TEST_F(Ranks, ABudgetIsEnforcedOnEach) {
  const testing::Outcome outcome = run(train("--steps 1 --devices 2 --policy none --memory 12MiB"));
  EXPECT_EQ(outcome.status, kDoesNotFit) << outcome.text;
  EXPECT_THAT(outcome.text,
              AllOf(HasSubstr("ends the job"), HasSubstr(" more than --memory 12MiB: smallest budget "),
                    HasSubstr("; --batch "), HasSubstr("; --policy optimal fits")));
}

// --- a rank that is killed ---------------------------------------------------------------------------------

// The process of this rank of the job that uses `directory`; 0 if there is none.
pid_t process_of_rank(int rank, const std::string& directory) {
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const auto contents = [&](const char* name) {
      std::ifstream file(entry.path() / name, std::ios::binary);
      return std::string{std::istreambuf_iterator<char>(file), {}};
    };
    if (contents("environ").find("OMPI_COMM_WORLD_RANK=" + std::to_string(rank) + '\0') !=
            std::string::npos &&
        contents("cmdline").find(directory) != std::string::npos) {
      return std::stoi(entry.path().filename());
    }
  }
  return 0;
}

class KilledRank : public Ranks {
 protected:
  void SetUp() override {
    Ranks::SetUp();
    testing::set_ranks_environment();
  }

  static constexpr int kRanks = 4;

  std::vector<std::string> arguments() const {
    std::vector<std::string> words = {VDNN_COMMAND,
                                      "train",
                                      "--device=cpu",
                                      "--model=lenet",
                                      "--data=synthetic",
                                      "--threads=1",
                                      "--memory=64MiB",
                                      "--batch=4",
                                      "--steps=40",
                                      "--devices=" + std::to_string(kRanks),
                                      "--save-every=3",
                                      "--save=" + path("checkpoint"),
                                      "--json=" + path("json")};
    if (fs::exists(path("checkpoint"))) {
      words.push_back("--resume=" + path("checkpoint"));
    }
    return words;
  }

  std::string text_of(const std::string& name) const {
    std::ifstream file(path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // Waits until no rank is left and the launcher has ended. Returns the time in seconds.
  double expect_end(testing::Command& command) const {
    const auto begin = std::chrono::steady_clock::now();
    constexpr int kTries = 1200;  // enough for a busy machine
    int tries = 0;
    const auto left = [&] {
      bool any = command.running();
      for (int rank = 0; rank < kRanks; ++rank) {
        any = any || process_of_rank(rank, directory_.string()) != 0;
      }
      return any;
    };
    for (; tries < kTries && left(); ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    EXPECT_LT(tries, kTries) << "processes are left running: " << text_of("output");
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  std::string weights() const {
    std::istringstream lines(text_of("json"));
    json last;
    for (std::string line; std::getline(lines, line);) {
      last = json::parse(line);
    }
    return last["weights_sha256"];
  }
};

// Kills at moments drawn by seed over start, steps and checkpoints. If the rank has not started or has ended
// at that moment, the test draws again.
TEST_F(KilledRank, EndsTheJobEverywhereAndTheCheckpointIsGoodToGoOnFrom) {
  double seconds = 0;
  {
    testing::Command command(arguments(), path("output"));
    seconds = expect_end(command);
    ASSERT_EQ(command.wait(), 0) << text_of("output");
  }
  const std::string straight = weights();
  const int kills = static_cast<int>(testing::extent({.usual = 2, .in_long_run = 20}));
  std::mt19937 random(1);
  double longest = 0;
  int hit = 0;
  for (int drawn = 0; hit < kills; ++drawn) {
    SCOPED_TRACE("kill " + std::to_string(drawn));
    ASSERT_LT(drawn, 10 * kills) << "no drawn moment met a running rank";
    fs::remove(path("checkpoint"));
    fs::remove(path("json"));
    const int rank = static_cast<int>(random() % kRanks);
    const double moment = std::uniform_real_distribution<>(0, 1)(random) * seconds;
    testing::Command command(arguments(), path("output"));
    std::this_thread::sleep_for(std::chrono::duration<double>(moment));
    const pid_t process = process_of_rank(rank, directory_.string());
    const bool killed = process != 0 && ::kill(process, SIGKILL) == 0;
    const double took = expect_end(command);
    if (!killed || text_of("output").find("steps,") != std::string::npos) {
      continue;  // training had ended before the kill
    }
    ++hit;
    longest = std::max(longest, took);
    EXPECT_NE(command.wait(), 0) << text_of("output");
    EXPECT_THAT(text_of("output"), AllOf(HasSubstr("rank " + std::to_string(rank)), HasSubstr("signal 9")));
    testing::Command resumed(arguments(), path("output"));
    expect_end(resumed);
    if (resumed.wait() == 0) {
      EXPECT_EQ(weights(), straight);
    } else {  // the last checkpoint was complete
      EXPECT_THAT(text_of("output"), HasSubstr("nothing left to do"));
    }
  }
  std::cout << "  " << hit << " ranks killed; the last process had gone after at most " << longest << " s\n";
}

// --- the launcher ------------------------------------------------------------------------------------------

// `vdnn train --devices` with a script in place of mpirun.
class Launcher : public testing::TemporaryDirectory {
 protected:
  // Runs the shell's `commands`, in which $train is the command.
  testing::Outcome with_mpirun(const std::string& script, const std::string& commands) const {
    const fs::path mpirun = directory_ / "mpirun";
    std::ofstream(mpirun) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(mpirun, fs::perms::owner_all);
    const std::string until =
        "until_there() { for i in $(seq 2000); do [ -e $1 ] && break; sleep 0.05; done; [ -e $1 ]; }\n";
    std::ofstream(directory_ / "commands")
        << until << "cd '" << directory_.string() << "'; PATH=\"$PWD:$PATH\"\ntrain='" << VDNN_COMMAND
        << " train --model lenet --data synthetic --steps 1 --device cpu --devices 2'\n"
        << commands << "\n";
    return testing::run_process("sh '" + (directory_ / "commands").string() + "'");
  }
};

TEST_F(Launcher, ItsStatusIsTheCommands) {
  EXPECT_EQ(with_mpirun("echo $1 $2; exit 7", "$train").status, 7);
  EXPECT_EQ(with_mpirun("kill -9 $$", "$train").status, 128 + SIGKILL);
  EXPECT_THAT(with_mpirun("echo \"$@\"", "$train").text, HasSubstr("-np 2 "));
}

TEST_F(Launcher, ThatCannotBeRunIsReported) {
  const testing::Outcome outcome = with_mpirun("", "rm mpirun; PATH=$PWD; $train");
  EXPECT_EQ(outcome.status, kUsage);
  EXPECT_THAT(outcome.text, HasSubstr("cannot run mpirun: No such file"));
}

// Regression: the command replaced its own process by mpirun, so nothing ended an mpirun that outlived its
// ranks.
TEST_F(Launcher, ThatStaysBehindItsRanksIsEnded) {
  const testing::Outcome outcome = with_mpirun("sleep 0.5 & echo $$ > launcher; exec sleep 600",
                                               "$train; status=$?; kill -0 $(cat launcher); exit $status");
  EXPECT_EQ(outcome.status, kNoDevice) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("mpirun was still running"), HasSubstr("No such process")));
}

// The command passes the request on as SIGUSR2, which mpirun forwards, so that ranks end by themselves. If
// mpirun itself got SIGINT or SIGTERM, it would give the ranks one second.
TEST_F(Launcher, ReceivesTheCommandsRequestToEnd) {
  const testing::Outcome outcome = with_mpirun(
      "trap 'echo handed on > heard; exit 9' USR2; touch ready; for i in $(seq 2000); do sleep 0.05; done",
      "$train & until_there ready && kill $!; wait $!; echo $?; cat heard");
  EXPECT_THAT(outcome.text, ::testing::ContainsRegex("^143\nhanded on\n$"));
}

// If ranks cannot save, the launcher ends with a status of failure. Regression: the command exited with the
// status of a saved run.
TEST_F(Launcher, ThatFailsAfterARequestDeterminesTheStatus) {
  const testing::Outcome outcome =
      with_mpirun("trap 'exit 4' USR2; touch ready; for i in $(seq 2000); do sleep 0.05; done",
                  "$train & until_there ready && kill $!; wait $!; echo $?");
  EXPECT_THAT(outcome.text, ::testing::ContainsRegex("^4\n$"));
}

TEST_F(Launcher, IsAskedToEndBySecondRequests) {
  const testing::Outcome outcome = with_mpirun(
      "trap 'touch first' USR2; trap 'echo ended > heard; exit 9' TERM; touch ready; for i in $(seq 2000); "
      "do "
      "sleep 0.05; done",
      "$train & until_there ready && kill $!; until_there first && kill $!; wait $!; echo $?; cat heard");
  EXPECT_THAT(outcome.text, ::testing::ContainsRegex("^143\nended\n$"));
}

TEST_F(Launcher, ReceivesTheRequestToSave) {
  const testing::Outcome outcome = with_mpirun(
      "trap 'echo saved > heard; exit 9' USR1; touch ready; for i in $(seq 2000); do sleep 0.05; done",
      "$train & until_there ready && kill -s USR1 $!; wait $!; echo $?; cat heard");
  EXPECT_THAT(outcome.text, ::testing::ContainsRegex("^9\nsaved\n$"));
}

// timeout and batch schedulers signal the whole process group. Open MPI takes a second request as an order to
// end at once.
TEST_F(Launcher, HearsOnceWhatItsWholeGroupIsAsked) {
  const testing::Outcome outcome = with_mpirun(
      "trap 'echo asked >> heard' TERM USR2; touch ready; for i in $(seq 2000); do [ -e heard ] && break; "
      "sleep 0.05; done; "
      "sleep 1; exit 9",
      "setsid $train & until_there ready && kill -s TERM -- -$!; wait $!; echo $?; cat heard");
  EXPECT_THAT(outcome.text, ::testing::ContainsRegex("^143\nasked\n$")) << "not the launcher's status";
}

// Daemons start their processes with SIGCHLD ignored.
TEST_F(Launcher, IsSeenToEndWhereChildrenAreIgnored) {
  EXPECT_EQ(with_mpirun("exit 7", "trap '' CHLD; exec $train").status, 7);
}

TEST_F(Launcher, EndsWithTheCommandHoweverThatEnds) {
  const testing::Outcome outcome =
      with_mpirun("trap 'touch ended; exit' TERM; touch ready; for i in $(seq 2000); do sleep 0.05; done",
                  "$train & until_there ready && kill -9 $!; until_there ended && echo both");
  EXPECT_THAT(outcome.text, HasSubstr("both"));
}

// --- bad input ---------------------------------------------------------------------------------------------

TEST_F(Ranks, MoreThanThereAreDevicesAreRefused) {
  const testing::Outcome outcome = run(train("--steps 1 --devices 2 --device cuda"));
  EXPECT_EQ(outcome.status, kUsage) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("each rank needs its own"));
}

TEST_F(Ranks, OneDeviceForAllIsRefused) {
  const testing::Outcome outcome = run(train("--steps 1 --devices 2 --device cuda:0"));
  EXPECT_EQ(outcome.status, kUsage) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("ranks cannot share it"));
}

TEST_F(Ranks, OtherNumbersThanTheLauncherHasStartedAreRefused) {
  const testing::Outcome outcome = testing::run_process(testing::mpirun(2, train("--steps 1 --devices 3")));
  EXPECT_EQ(outcome.status, kUsage) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("--devices 3, and the launcher has started 2"));
}

class RanksThatDiffer : public Ranks,
                        public ::testing::WithParamInterface<std::pair<const char*, const char*>> {};

TEST_P(RanksThatDiffer, AreNamedWithTheOption) {
  const auto& [option, expected] = GetParam();
  const testing::Outcome outcome = testing::run_process(
      testing::mpirun(1, train("--steps 1") + " : -np 1 " + train("--steps 1 " + std::string(option))));
  EXPECT_EQ(outcome.status, kUsage) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr(expected));
}

INSTANTIATE_TEST_SUITE_P(In, RanksThatDiffer,
                         ::testing::Values(std::pair("--lr 0.5", "rank 1 has lr 0.5, rank 0 has 0.01"),
                                           std::pair("--seed 7", "rank 1 has seed 7, rank 0 has 1"),
                                           std::pair("--batch 8", "rank 1 has batch 8, rank 0 has 4"),
                                           std::pair("--device sim:titan-x",
                                                     R"(rank 1 has device "sim", rank 0 has "cpu")")),
                         [](const auto& test) { return "Option" + std::to_string(test.index); });

TEST_F(Ranks, NoneAndNoBatchesAreRefused) {
  for (const std::string arguments :
       {"--devices 0", "--accumulate 0", "--machines 0", "--bucket 0", "--devices 2 --machines 2"}) {
    const testing::Outcome outcome = run(train("--steps 1 " + arguments));
    EXPECT_EQ(outcome.status, kUsage) << arguments << ": " << outcome.text;
  }
}

}  // namespace
}  // namespace vdnn
