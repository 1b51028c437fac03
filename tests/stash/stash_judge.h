#pragma once
// Devices that judge the order of a stash's copies and the program's work. `sim` checks races and versions.
// The fake CUDA runtime checks CUDA's rules and the bytes that its kernels read. `cpu` checks only bytes,
// with random delays.

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/stash/failing_stash_backend.h"
#include "vdnn/stash_backend.h"

namespace vdnn::testing {

// An access of work to a range. `version` identifies the contents, as in contents_version(); 0 means scratch.
struct JudgedAccess {
  AddressRange range;
  std::uint64_t version = 0;
};

class StashJudge {
 public:
  static constexpr std::size_t kStreams = 2;

  StashJudge() = default;
  virtual ~StashJudge() = default;
  StashJudge(const StashJudge&) = delete;
  StashJudge& operator=(const StashJudge&) = delete;

  virtual std::unique_ptr<StashBackend> make_backend() = 0;
  // A stream of the program.
  virtual StreamHandle stream(std::size_t index) const = 0;
  // The program's memory.
  virtual AddressRange arena() const = 0;
  virtual void work(StreamHandle stream, const std::string& name, const std::vector<JudgedAccess>& reads,
                    const std::vector<JudgedAccess>& writes) = 0;
  // All later work on `later` comes after all work submitted to `earlier` so far.
  virtual void order(StreamHandle later, StreamHandle earlier) = 0;
  // True if all work submitted to `stream` so far is done. Some programs decide by this.
  virtual bool is_done(StreamHandle stream) = 0;
  // The host pauses for a while.
  virtual void rest() {}
  // The `nth` device call from now on (from 1) of those that `failure` counts fails once.
  virtual void fail_call(std::uint64_t nth, const CallFailure& failure) = 0;
  // The call that failed, or "".
  virtual std::string failed_call() const = 0;
  // The number of device calls so far, of this name or of all.
  virtual std::uint64_t calls(std::string_view name) const = 0;
  // The calls that may report a lack of memory; the first one page-locks memory.
  virtual std::span<const std::string_view> calls_that_need_memory() const = 0;
  // Waits for all work, and then returns errors, page-locked memory and leaks. On CUDA, a stream or an event
  // is not a leak if the call that should have destroyed it was made to fail.
  virtual std::vector<std::string> finish() = 0;
};

enum class JudgeKind : std::uint8_t { kSim, kCuda, kCpu };
std::ostream& operator<<(std::ostream& out, JudgeKind kind);

// With `by_order`, `sim` runs work in a random permitted order; otherwise it checks for races.
std::unique_ptr<StashJudge> make_stash_judge(JudgeKind kind, std::uint64_t seed, bool by_order = false);

}  // namespace vdnn::testing
