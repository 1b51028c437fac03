#pragma once
// Signals that ask a training for something: SIGINT and SIGTERM to end when the step is done and saved,
// SIGUSR1 to save and go on, as schedulers send it before they take a machine away. A second one that asks
// for the end ends the process at once; the same one within half a second is the same request. SIGUSR2 is how
// a launcher hands SIGINT or SIGTERM on to ranks (launcher_process.h). A signal that this process was started
// to ignore, as by `trap ''`, stays ignored.

#include <array>
#include <csignal>
#include <optional>
#include <string>

#include "vdnn/error.h"
#include "vdnn/trainer.h"

namespace vdnn {

// From here on SIGUSR1 is a request, for the rest of the process: it would end a training that still starts,
// or has its last step behind it.
void hear_save_requests();

// From its construction to its destruction the signals that ask for the end are requests. One at a time in a
// process.
class SignalRequests {
 public:
  SignalRequests();
  ~SignalRequests();
  SignalRequests(const SignalRequests&) = delete;
  SignalRequests& operator=(const SignalRequests&) = delete;

  // What has been asked for since the last call. On any thread.
  static TrainingRequest take();
  // The signal that asked for the end; nothing: none has.
  static std::optional<int> ended_by();

 private:
  static constexpr std::array kEnding{SIGINT, SIGTERM, SIGUSR2};
  using Disposition = struct sigaction;
  static void end_later(int signal);

  std::array<Disposition, kEnding.size()> before_{};
};

// A run that a signal has ended, after everything was written. Where another rank was told, SIGTERM.
class Interrupted : public Error {
 public:
  Interrupted(const std::string& what, int signal) : Error(what), signal_(signal) {}
  int signal() const { return signal_; }

 private:
  int signal_;
};

}  // namespace vdnn
