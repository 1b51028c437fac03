#include "src/cli/signals.h"

#include <atomic>
#include <cstddef>

namespace vdnn {

namespace {

// Handlers may touch lock-free atomics alone.
std::atomic<int> ending_signal{0};
std::atomic<bool> save_wanted{false};
std::atomic<bool> end_wanted{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void set_handler(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

void save_soon(int /*signal*/) {
  save_wanted = true;
}

}  // namespace

void hear_save_requests() {
  set_handler(SIGUSR1, save_soon);
}

// A handler. Two signals that come together may both find it installed, on one thread or on two: it counts
// them.
void SignalRequests::end_later(int signal) {
  if (ending_signal.exchange(signal) == 0) {
    end_wanted = true;
    return;
  }
  set_handler(signal, SIG_DFL);
  raise(signal);  // blocked until this handler returns
}

SignalRequests::SignalRequests() {
  ending_signal = 0;
  end_wanted = false;
  for (std::size_t i = 0; i < kEnding.size(); ++i) {
    sigaction(kEnding[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) {
      set_handler(kEnding[i], end_later);
    }
  }
}

SignalRequests::~SignalRequests() {
  for (std::size_t i = 0; i < kEnding.size(); ++i) {
    sigaction(kEnding[i], &before_[i], nullptr);
  }
}

TrainingRequest SignalRequests::take() {
  if (end_wanted.exchange(false)) {
    return TrainingRequest::kStop;
  }
  return save_wanted.exchange(false) ? TrainingRequest::kSave : TrainingRequest::kNothing;
}

std::optional<int> SignalRequests::ended_by() {
  const int signal = ending_signal;
  if (signal == 0) {
    return std::nullopt;
  }
  return signal == SIGUSR2 ? SIGTERM : signal;
}

}  // namespace vdnn
