#pragma once
// Devices that judge the order of a stash's copies and of the program's work: `sim` by its checks of races
// and versions, the fake CUDA runtime by CUDA's rules and by the bytes that its kernels find, `cpu` by bytes
// alone, with random delays.

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "vdnn/stash_backend.h"

namespace vdnn::testing {

// An access of work to a range: `version` names the contents, as contents_version() does. 0: scratch.
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
  // The program's.
  virtual StreamHandle stream(std::size_t index) const = 0;
  // Its memory.
  virtual AddressRange arena() const = 0;
  virtual void work(StreamHandle stream, const std::string& name, const std::vector<JudgedAccess>& reads,
                    const std::vector<JudgedAccess>& writes) = 0;
  // All later work on `later` comes after all work that `earlier` has been given.
  virtual void order(StreamHandle later, StreamHandle earlier) = 0;
  // Whether what `stream` was given so far is done: for programs that decide by it.
  virtual bool is_done(StreamHandle stream) = 0;
  // The host does something else for a while.
  virtual void rest() {}
  // The `nth` call of the device from now on fails once.
  virtual void fail_call(std::uint64_t nth) = 0;
  virtual std::uint64_t calls() const = 0;
  // Waits for all work, and then returns errors, page-locked bytes and leaks.
  virtual std::vector<std::string> finish() = 0;
};

enum class JudgeKind : std::uint8_t { kSim, kCuda, kCpu };
std::ostream& operator<<(std::ostream& out, JudgeKind kind);

// On `sim`, work is done in a random permitted order if `by_order`, and is checked for races if not.
std::unique_ptr<StashJudge> make_stash_judge(JudgeKind kind, std::uint64_t seed, bool by_order = false);

}  // namespace vdnn::testing
