#pragma once
// Collectives for tests of data flow. Like an op's result, a collective's result is a function of every byte
// of its bucket (hash_program.h). There are no other ranks.

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "src/exec/collective_accesses.h"
#include "tests/exec/hash_program.h"
#include "vdnn/communicator.h"

namespace vdnn::testing {

class HashCommunicator : public Communicator {
 public:
  static constexpr int kRanks = 4;

  // `device` and `tape` must outlive this object.
  HashCommunicator(Device& device, const Tape& tape) : device_(device), tape_(tape) {}

  int rank() const override { return 0; }
  int size() const override { return kRanks; }

  using Communicator::all_reduce;
  Point all_reduce(StreamId stream, std::span<const Collective> parts) override {
    const auto op = std::ranges::find(tape_.ops(), parts.front().name, &Op::name) - tape_.ops().begin();
    std::vector<AddressRange> ranges;
    for (const Collective& part : parts) {
      EXPECT_EQ(part.name, parts.front().name);
      const ValueId value = tape_.op(static_cast<OpId>(op)).reads[ranges.size()];
      EXPECT_EQ(part.type, tape_.value(value).type.data_type);
      ranges.push_back(part.range);
    }
    const CollectiveAccesses accesses = accesses_of_all_reduce(parts);
    return device_.submit(stream, {.name = parts.front().name,
                                   .reads = accesses.reads,
                                   .writes = accesses.writes,
                                   .cost = {},
                                   .run = [this, op, ranges](void* native_stream) {
                                     program_.run(static_cast<OpId>(op),
                                                  {.reads = ranges, .writes = ranges, .workspace = {}}, {},
                                                  native_stream);
                                   }});
  }
  Point broadcast(StreamId stream, const Collective&, int) override {
    ADD_FAILURE() << "a step must not broadcast";
    return {.stream = stream};
  }

  void wait(const Frontier& frontier) override { device_.synchronize(frontier); }
  void break_off(const std::string& cause) override { ADD_FAILURE() << cause; }
  std::uint64_t library_bytes() const override { return 0; }

  // The runs of the collectives, as in HashProgram.
  std::vector<OpRun> runs() const { return program_.runs(); }

 private:
  Device& device_;
  const Tape& tape_;
  HashProgram program_;
};

}  // namespace vdnn::testing
