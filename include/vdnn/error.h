#pragma once
// Errors. Everything that this library reports late or rarely is an exception of one of these types; what is
// an expected outcome on a hot path (a pool that is exhausted) is an enum instead. Nothing here ever exits
// the process. The command maps the types to its exit status (src/cli).

#include <cstdint>
#include <stdexcept>
#include <string>

namespace vdnn {

// Base of all of them: catch this to catch the library.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What the caller passed cannot be: a shape, an option, a file. Found before anything runs.
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

// A device that failed. `lost()` means that it is gone for good: every later call returns the first cause.
class DeviceError : public Error {
 public:
  explicit DeviceError(const std::string& what, bool lost = false) : Error(what), lost_(lost) {}
  bool lost() const { return lost_; }

 private:
  bool lost_;
};

// The numbers behind a failed allocation, all in bytes.
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
  // Of a plan, which needs `asked` bytes in a budget of `budget` bytes: `text` has these numbers.
  OutOfMemory(const std::string& text, std::uint64_t asked, std::uint64_t budget);
  const MemoryShortage& shortage() const { return shortage_; }

 private:
  MemoryShortage shortage_;
};

// Numbers that are not finite where training needs finite ones: a loss, the norm of the gradients, or a state
// that was to be saved. `step()`: updates since the start of training, the one at fault included; from 1.
class Diverged : public Error {
 public:
  Diverged(const std::string& what, std::uint64_t step) : Error(what), step_(step) {}
  std::uint64_t step() const { return step_; }

 private:
  std::uint64_t step_;
};

}  // namespace vdnn
