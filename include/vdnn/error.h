#pragma once
// Errors. The library reports failures as exceptions of these types. An outcome that is expected on a hot
// path, for example an exhausted pool, is an empty optional or an enum instead. The library never exits the
// process. The command maps the types to its exit status (src/cli).

#include <cstdint>
#include <stdexcept>
#include <string>

namespace vdnn {

// Base of all types below. Catch this type to catch every error of the library.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The caller passed an impossible argument: a shape, an option, a file. Found before anything runs.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

// A file or a data set that cannot be read, is damaged, or cannot be written.
class DataError : public Error {
 public:
  using Error::Error;
};

// A schedule that breaks one of its rules (see checker.h). Found before it runs.
class ScheduleError : public Error {
 public:
  using Error::Error;
};

// A device failed. `lost()`: the device is gone for good, and every later call fails with the first cause.
class DeviceError : public Error {
 public:
  explicit DeviceError(const std::string& what, bool lost = false) : Error(what), lost_(lost) {}
  bool lost() const { return lost_; }

 private:
  bool lost_;
};

// The numbers of a failed allocation, all in bytes.
struct MemoryShortage {
  std::uint64_t asked = 0;
  std::uint64_t in_use = 0;              // handed out to callers
  std::uint64_t cached = 0;              // committed and free
  std::uint64_t largest_free_block = 0;  // the largest piece of `cached`
  std::uint64_t budget = 0;
  // The largest request that would have been granted: from the cache, or by growing within the budget.
  std::uint64_t would_have_fitted = 0;
};

// A budget does not suffice. The text repeats the numbers.
class OutOfMemory : public Error {
 public:
  OutOfMemory(const std::string& where, const MemoryShortage& shortage);
  // For a plan that needs `asked` bytes in a budget of `budget` bytes. `text` contains these numbers.
  OutOfMemory(const std::string& text, std::uint64_t asked, std::uint64_t budget);
  const MemoryShortage& shortage() const { return shortage_; }

 private:
  MemoryShortage shortage_;
};

// A number is not finite where training needs it to be: a loss, the norm of the gradients, or a state to be
// saved. `step()` is the number of the update at fault, counted from 1 since the start of training.
class Diverged : public Error {
 public:
  Diverged(const std::string& what, std::uint64_t step) : Error(what), step_(step) {}
  std::uint64_t step() const { return step_; }

 private:
  std::uint64_t step_;
};

}  // namespace vdnn
