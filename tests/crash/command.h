#pragma once
// A program that runs beside the test. The test can kill it and change its files and disk.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace vdnn::testing {

class Command {
 public:
  // The program ends with the thread that starts it, even if that thread is killed. Its output goes to
  // `output`.
  Command(std::vector<std::string> arguments, const std::filesystem::path& output) {
    std::vector<char*> pointers(arguments.size() + 1, nullptr);
    std::ranges::transform(arguments, pointers.begin(),
                           [](std::string& argument) { return argument.data(); });
    const pid_t parent = ::getpid();
    process_ = ::fork();
    if (process_ == 0) {
      if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) {
        ::_exit(kNotRun);
      }
      ::signal(SIGINT, SIG_DFL);  // a shell's background programs ignore SIGINT
      const int file = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
      ::dup2(file, STDOUT_FILENO);
      ::dup2(file, STDERR_FILENO);
      ::execv(pointers.front(), pointers.data());
      ::_exit(kNotRun);
    }
    EXPECT_GT(process_, 0);
  }
  ~Command() {
    if (!status_) {
      kill();
    }
  }
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  bool running() {
    reap(WNOHANG);
    return !status_;
  }
  void send(int signal) const { ::kill(process_, signal); }
  // Sends SIGKILL. Returns whether the program was still running.
  bool kill() {
    if (running()) {
      ::kill(process_, SIGKILL);
      reap(0);
    }
    return WIFSIGNALED(*status_) && WTERMSIG(*status_) == SIGKILL;
  }
  // The program's exit status; -1 if a signal ended it.
  int wait() {
    reap(0);
    return WIFEXITED(*status_) ? WEXITSTATUS(*status_) : -1;
  }
  // The signal that ended the program; 0 if none did.
  int ending_signal() {
    reap(0);
    return WIFSIGNALED(*status_) ? WTERMSIG(*status_) : 0;
  }

 private:
  static constexpr int kNotRun = 127;  // as shells report it

  void reap(int options) {
    int status = 0;
    if (!status_ && ::waitpid(process_, &status, options) == process_) {
      status_ = status;
    }
  }

  pid_t process_ = -1;
  std::optional<int> status_;  // from waitpid(), once the program has ended
};

}  // namespace vdnn::testing
