#include "src/cli/exit_status.h"

#include <spdlog/spdlog.h>

#include <exception>

#include "vdnn/error.h"

namespace vdnn {

namespace {

constexpr int kExitOther = 1;
constexpr int kExitDoesNotFit = 3;
constexpr int kExitDevice = 4;

int report(const std::exception& error, int status) {
  spdlog::error("{}", error.what());
  return status;
}

}  // namespace

int exit_status_of(const std::function<void()>& command) {
  try {
    command();
    return 0;
  } catch (const InvalidArgument& error) {
    return report(error, kExitUsage);
  } catch (const DataError& error) {
    return report(error, kExitUsage);
  } catch (const ScheduleError& error) {
    return report(error, kExitUsage);
  } catch (const OutOfMemory& error) {
    return report(error, kExitDoesNotFit);
  } catch (const DeviceError& error) {
    return report(error, kExitDevice);
  } catch (const std::exception& error) {
    return report(error, kExitOther);
  }
}

}  // namespace vdnn
