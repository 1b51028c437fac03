#include "src/cli/exit_status.h"

#include <spdlog/spdlog.h>

#include <array>
#include <csignal>
#include <exception>

#include "src/cli/option_flags.h"
#include "src/cli/signals.h"
#include "vdnn/option_error.h"

namespace vdnn {

namespace {

constexpr int kExitOther = 1;

constexpr std::array kStatuses{
    ExitStatus{0, "done"},
    ExitStatus{kExitOther, "anything else, for example a disk that is full"},
    ExitStatus{kExitUsage, "bad usage or bad input; nothing was changed"},
    ExitStatus{kExitDoesNotFit, "does not fit into the budget; the message names what would fit"},
    ExitStatus{kExitDevice, "device failure"},
    ExitStatus{kExitDiverged,
               "the training has diverged: the loss or the norm of the gradients is not finite"},
    ExitStatus{kExitSignal + SIGINT, "training ended by SIGINT; with --save, after saving"},
    ExitStatus{kExitSignal + SIGTERM, "training ended by SIGTERM; with --save, after saving"}};

}  // namespace

std::span<const ExitStatus> exit_statuses() {
  return kStatuses;
}

Failure current_failure() {
  try {
    throw;
  } catch (const Interrupted& error) {
    return {kExitSignal + error.signal(), error.what()};
  } catch (const InvalidOption& error) {
    return {kExitUsage, in_flags(error)};
  } catch (const UnsuitableOptions& error) {
    return {kExitUsage, in_flags(error)};
  } catch (const InvalidArgument& error) {
    return {kExitUsage, error.what()};
  } catch (const DataError& error) {
    return {kExitUsage, error.what()};
  } catch (const ScheduleError& error) {
    return {kExitUsage, error.what()};
  } catch (const DoesNotFit& error) {
    return {kExitDoesNotFit, in_flags(error.budget_shortage())};
  } catch (const OutOfMemory& error) {
    return {kExitDoesNotFit, error.what()};
  } catch (const DeviceError& error) {
    return {kExitDevice, error.what()};
  } catch (const Diverged& error) {
    return {kExitDiverged, error.what()};
  } catch (const std::exception& error) {
    return {kExitOther, error.what()};
  }
}

int exit_status_of(const std::function<void()>& command) {
  try {
    command();
    return 0;
  } catch (...) {
    const Failure failure = current_failure();
    if (!failure.text.empty()) {
      spdlog::error("{}", failure.text);
    }
    return failure.status;
  }
}

}  // namespace vdnn
