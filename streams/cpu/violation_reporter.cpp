#include "streams/cpu/violation_reporter.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "vdnn/error.h"

namespace vdnn {

// Everything that report() does is async-signal-safe (signal-safety(7)).
struct ViolationHandler {
  std::mutex mutex;  // guards the members below, except from the handler
  std::array<std::atomic<const ViolationReporter*>, ViolationReporter::kMost> reporters{};
  std::size_t count = 0;
  struct sigaction previous {};

  static ViolationHandler& instance() {
    static ViolationHandler handler;
    return handler;
  }

  static void write_text(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
      if (written <= 0) {
        return;
      }
      text.remove_prefix(static_cast<std::size_t>(written));
    }
  }

  static void write_address(const void* address) {
    std::array<char, 2 * sizeof(std::uintptr_t)> digits{};
    auto rest = reinterpret_cast<std::uintptr_t>(address);
    for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, rest /= 16) {
      *digit = "0123456789abcdef"[rest % 16];
    }
    write_text("0x");
    write_text({digits.data(), digits.size()});
  }

  static void report(int signal_number, siginfo_t* info, void*) {
    for (const auto& entry : instance().reporters) {
      const ViolationReporter* const reporter = entry.load();
      const char* const name = reporter == nullptr ? nullptr : reporter->name_.load();
      if (name != nullptr) {
        write_text("vdnn: work '");
        write_text({name, reporter->name_bytes_.load()});
        write_text("' touched an address that it had not declared, or wrote what it had declared as read: ");
        write_address(info->si_addr);
        write_text("\n");
      }
    }
    // The signal is blocked until this handler returns. Then the signal ends the process, as it would have
    // done without the handler.
    signal(signal_number, SIG_DFL);
    raise(signal_number);
  }

  void install() {
    struct sigaction action {};
    action.sa_sigaction = &report;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &previous);
  }

  std::size_t add(const ViolationReporter& reporter) {
    const std::lock_guard lock(mutex);
    const auto free =
        std::ranges::find_if(reporters, [](const auto& entry) { return entry.load() == nullptr; });
    if (free == reporters.end()) {
      throw DeviceError("cpu: more than " + std::to_string(reporters.size()) +
                        " devices that check accesses in one process");
    }
    if (count++ == 0) {
      install();
    }
    free->store(&reporter);
    return static_cast<std::size_t>(free - reporters.begin());
  }

  void remove(std::size_t slot) {
    const std::lock_guard lock(mutex);
    reporters[slot].store(nullptr);
    if (--count == 0) {
      sigaction(SIGSEGV, &previous, nullptr);
    }
  }
};

ViolationReporter::ViolationReporter() : slot_(ViolationHandler::instance().add(*this)) {}

ViolationReporter::~ViolationReporter() {
  ViolationHandler::instance().remove(slot_);
}

void ViolationReporter::begin(std::string_view name) {
  name_bytes_.store(name.size());
  name_.store(name.data());
}

void ViolationReporter::end() {
  name_.store(nullptr);
}

}  // namespace vdnn
