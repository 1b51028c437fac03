#include "src/cli/launcher_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "src/cli/exit_status.h"
#include "vdnn/error.h"

namespace vdnn {

namespace {

constexpr std::chrono::seconds kPatience(10);
// Open MPI exits without ending its ranks if it gets a second signal within five seconds of the first.
constexpr std::chrono::seconds kBetweenSignals(6);
// Time for ranks to install their handlers of SIGUSR1, which would otherwise end them.
constexpr std::chrono::seconds kToInstallHandlers(2);

enum class Child : std::uint8_t { kNone, kEnded, kRunning };

// The state of the process of this entry of /proc if it is a child of `parent`, else kNone.
Child child_of(pid_t parent, const std::filesystem::path& entry) {
  if (entry.filename().string().find_first_not_of("0123456789") != std::string::npos) {
    return Child::kNone;
  }
  std::ifstream file(entry / "stat");
  std::string text;
  std::getline(file, text);
  // "7 (a name, of anything) S 1 ...": state and parent.
  const std::size_t name_end = text.rfind(") ");
  if (name_end == std::string::npos || text.size() < name_end + 4) {
    return Child::kNone;  // it has ended
  }
  const char state = text[name_end + 2];
  pid_t its_parent = 0;
  std::from_chars(text.data() + name_end + 4, text.data() + text.size(), its_parent);
  if (its_parent != parent) {
    return Child::kNone;
  }
  return state == 'Z' || state == 'X' ? Child::kEnded : Child::kRunning;
}

// kRunning if any child of `parent` runs, else kEnded if there is any child.
Child children_of(pid_t parent) {
  Child most = Child::kNone;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error); entry != end(entry);
       entry.increment(error)) {
    most = std::max(most, child_of(parent, entry->path()));
  }
  return most;
}

// Both ends of the pipe are closed on exec.
std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw DeviceError(std::string("cannot make a pipe: ") + std::strerror(errno));
  }
  return ends;
}

bool is_ignored(int signal) {
  struct sigaction now {};
  sigaction(signal, nullptr, &now);
  return now.sa_handler == SIG_IGN;
}

// Whether this status shows how a rank failed: bad usage, lack of memory, a device failure or divergence.
// Status 1 does not, since Open MPI also exits with it after it was asked to end its ranks.
bool is_named_failure(int status) {
  return WIFEXITED(status) && WEXITSTATUS(status) >= kExitUsage && WEXITSTATUS(status) <= kExitDiverged;
}

// While an object of this class exists, the signals that wait() receives are blocked.
class WatchedSignals {
 public:
  WatchedSignals() {
    sigemptyset(&all_);
    std::signal(SIGCHLD, SIG_DFL);  // ignoring it would lose the status of an ended child
    for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
      if (!is_ignored(signal)) {  // an ignored signal must not be received, which blocking would cause
        sigaddset(&all_, signal);
      }
    }
    pthread_sigmask(SIG_BLOCK, &all_, &before_);
  }
  ~WatchedSignals() { restore(); }
  WatchedSignals(const WatchedSignals&) = delete;
  WatchedSignals& operator=(const WatchedSignals&) = delete;

  void restore() const { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  // Waits for a signal to this process and returns it. Returns 0 after `time`, or if a child has ended.
  int wait(std::chrono::milliseconds time) const {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
    const timespec longest{.tv_sec = seconds.count(),
                           .tv_nsec = std::chrono::nanoseconds(time - seconds).count()};
    const int signal = sigtimedwait(&all_, nullptr, &longest);
    return signal > 0 && signal != SIGCHLD ? signal : 0;
  }

 private:
  sigset_t all_{};
  sigset_t before_{};
};

// Whether a terminal sends its signals to this process and its group.
bool is_in_foreground() {
  const int terminal = open("/dev/tty", O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (terminal < 0) {
    return false;
  }
  const bool foreground = tcgetpgrp(terminal) == getpgrp();
  close(terminal);
  return foreground;
}

// In the child: becomes the launcher, or reports why it cannot.
[[noreturn]] void become(std::vector<char*>& words, const WatchedSignals& signals, bool own_group,
                         pid_t parent, int says) {
  signals.restore();
  if ((!own_group || setpgid(0, 0) == 0) && prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() == parent) {
    execvp(words.front(), words.data());
  }
  const int cause = errno;
  [[maybe_unused]] const auto written = write(says, &cause, sizeof cause);
  _exit(1);
}

pid_t start(std::vector<std::string>& command, const WatchedSignals& signals, bool own_group) {
  std::vector<char*> words(command.size() + 1, nullptr);
  std::ranges::transform(command, words.begin(), [](std::string& word) { return word.data(); });
  const auto [hears, says] = make_pipe();
  const pid_t parent = getpid();
  const pid_t launcher = fork();
  if (launcher == 0) {
    become(words, signals, own_group, parent, says);
  }
  int cause = launcher < 0 ? errno : 0;
  close(says);
  if (launcher > 0 && read(hears, &cause, sizeof cause) == sizeof cause) {
    waitpid(launcher, nullptr, 0);
  }
  close(hears);
  if (cause != 0) {
    throw InvalidArgument("cannot run " + command.front() + ": " + std::strerror(cause));
  }
  return launcher;
}

}  // namespace

int run_launcher(std::vector<std::string> command) {
  using Clock = std::chrono::steady_clock;
  const WatchedSignals signals;
  // Without a terminal the launcher gets a group of its own, so that it receives signals only from this
  // process.
  const bool own_group = !is_in_foreground();
  const pid_t launcher = start(command, signals, own_group);
  bool started = false;  // whether the launcher has started a process
  Clock::time_point started_at;
  bool is_to_save = false;
  Clock::time_point last_seen;
  int asked = 0;  // the signal to forward; a launcher in the same process group may have received it, too
  Clock::time_point asked_at;
  int heard = 0;  // the last signal that asked this process to end
  int status = 0;
  for (pid_t ended = 0; ended != launcher; ended = waitpid(launcher, &status, WNOHANG)) {
    // Polls often until the launcher has started a process, which may end soon.
    if (const int signal = signals.wait(std::chrono::milliseconds(started ? 2000 : 100)); signal == SIGUSR1) {
      is_to_save = true;  // no terminal sends this signal to the launcher
    } else if (signal != 0 && own_group && heard == 0 && signal != SIGHUP) {
      heard = signal;
      kill(launcher, SIGUSR2);  // the launcher forwards SIGUSR2; after SIGINT or SIGTERM it ends its ranks
                                // within one second
    } else if (signal != 0) {
      heard = asked = signal;
      asked_at = Clock::now();
    }
    if (is_to_save && started && Clock::now() - started_at > kToInstallHandlers) {
      kill(launcher, SIGUSR1);
      is_to_save = false;
    }
    if (asked != 0 && (own_group || Clock::now() - asked_at > kBetweenSignals)) {
      kill(launcher, std::exchange(asked, 0));
    }
    const Child children = children_of(launcher);
    if (children == Child::kRunning || (children == Child::kEnded && !started)) {
      started_at = started ? started_at : Clock::now();
      started = true;
      last_seen = Clock::now();
    } else if (started && Clock::now() - last_seen > kPatience) {
      kill(launcher, SIGKILL);
      waitpid(launcher, &status, 0);
      throw DeviceError(command.front() +
                        " was still running after all of its processes had ended, and has been ended");
    }
  }
  if (heard != 0 && status != 0 && !is_named_failure(status)) {
    return kExitSignal + heard;  // Open MPI's own status does not contain the signal
  }
  return WIFSIGNALED(status) ? kExitSignal + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace vdnn
