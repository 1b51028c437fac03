#pragma once
// Signals as requests to the training loop. SIGINT and SIGTERM ask it to end once the current step is done
// and saved. SIGUSR1 asks it to save and continue; schedulers send SIGUSR1 before they withdraw a machine. A
// second SIGINT or SIGTERM ends the process at once; the same signal within 0.5 s is the same request. A
// launcher forwards SIGINT or SIGTERM to ranks as SIGUSR2 (launcher_process.h). A signal that was ignored
// when this process started, for example by `trap ''`, stays ignored.

#include <array>
#include <csignal>
#include <optional>
#include <string>

#include "vdnn/error.h"
#include "vdnn/trainer.h"

namespace vdnn {

// Makes SIGUSR1 a request until the process ends. Otherwise SIGUSR1 would end a process that is still
// preparing to train, or has done its last step.
void hear_save_requests();

// While an object of this class exists, signals that ask for the end become requests instead of ending the
// process. A process has at most one such object at a time.
class SignalRequests {
 public:
  SignalRequests();
  ~SignalRequests();
  SignalRequests(const SignalRequests&) = delete;
  SignalRequests& operator=(const SignalRequests&) = delete;

  // The requests since the last call. May be called on any thread.
  static TrainingRequest take();
  // The signal that asked for the end; absent: none has.
  static std::optional<int> ended_by();

 private:
  static constexpr std::array kEnding{SIGINT, SIGTERM, SIGUSR2};
  using Disposition = struct sigaction;
  static void end_later(int signal);

  std::array<Disposition, kEnding.size()> before_{};
};

// A signal has ended the run; all output was written before. signal() is SIGTERM if another rank received the
// signal.
class Interrupted : public Error {
 public:
  Interrupted(const std::string& what, int signal) : Error(what), signal_(signal) {}
  int signal() const { return signal_; }

 private:
  int signal_;
};

}  // namespace vdnn
