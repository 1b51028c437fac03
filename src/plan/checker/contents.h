#pragma once
// Checks the contents of buffers. Every operand must be in an allocated buffer that has the value, in the
// version that the op uses according to the tape. Every value must be made once per step. Every buffer that
// is not persistent must be released in the step that allocates it.

#include <cstdint>
#include <vector>

#include "src/plan/checker/findings.h"
#include "vdnn/schedule.h"
#include "vdnn/tape.h"

namespace vdnn::checking {

// Tape, schedule and findings must outlive this object.
class ContentCheck {
 public:
  // At first, persistent values are in their buffers, in version 1.
  ContentCheck(const Tape& tape, const Schedule& schedule, Findings& findings);

  void allocate(const Visit& visit);
  void require_releasable(const Visit& visit);
  void release(BufferId id) { buffers_[id] = {}; }
  void require_allocated(const Visit& visit, BufferId id);
  void read(const Visit& visit, const BufferUse& use);
  void write(const Visit& visit, const BufferUse& use);
  void check_end_of_step(std::uint32_t step);

 private:
  struct Content {
    ValueId value = kNone;  // kNone if the contents are undefined
    std::uint64_t version = 0;
    friend bool operator==(const Content&, const Content&) = default;
  };
  struct Tenancy {
    bool allocated = false;
    Content content;
  };

  std::uint64_t meant_version(const Visit& visit, ValueId id) const;
  void recompute(const Visit& visit, const BufferUse& use);

  const Tape& tape_;
  const Schedule& schedule_;
  Findings& findings_;
  std::vector<Tenancy> buffers_;
  std::vector<std::uint64_t> made_;         // by value: how often it was made
  std::vector<std::vector<OpId>> writers_;  // by value: the ops that make or rewrite it, in the tape's order
};

}  // namespace vdnn::checking
