#pragma once
// Mathematics for tests of data flow. An op's result is a function of the op, of the step's scalars and of
// every byte that the op reads. So one wrong byte changes everything after it. Like real ops, these ops read
// before they write, so they may overwrite in place, and they leave garbage in their workspace. Interpreter
// computes the expected results without a schedule, with a vector for each value.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/random.h"
#include "vdnn/error.h"
#include "vdnn/op_library.h"

namespace vdnn::testing {

using Bytes = std::vector<std::byte>;

// Copies whole words by a constant size. Compilers turn this into one instruction, under sanitizers, too.
inline std::uint64_t hash_bytes(std::uint64_t hash, std::span<const std::byte> bytes) {
  std::uint64_t word = 0;
  std::size_t at = 0;
  for (; at + sizeof(word) <= bytes.size(); at += sizeof(word)) {
    std::memcpy(&word, bytes.data() + at, sizeof(word));
    hash = mix64(hash ^ word) + sizeof(word);
  }
  if (const std::size_t rest = bytes.size() - at; rest > 0) {
    word = 0;
    std::memcpy(&word, bytes.data() + at, rest);
    hash = mix64(hash ^ word) + rest;
  }
  return hash;
}

inline void fill_from(std::uint64_t seed, std::span<std::byte> bytes) {
  SplitMix64 random(seed);
  std::uint64_t word = random.next();
  std::size_t at = 0;
  for (; at + sizeof(word) <= bytes.size(); at += sizeof(word), word = random.next()) {
    std::memcpy(bytes.data() + at, &word, sizeof(word));
  }
  if (at < bytes.size()) {
    std::memcpy(bytes.data() + at, &word, bytes.size() - at);
  }
}

// An op's result as a hash. The contents of its operand number `write` are drawn from the seed mix_seed(hash,
// write).
inline std::uint64_t op_hash(OpId op, const StepScalars& scalars,
                             std::span<const std::span<const std::byte>> reads) {
  std::uint64_t hash = hash_bytes(op, std::as_bytes(std::span(&scalars.learning_rate, 1)));
  for (const std::span<const std::byte> read : reads) {
    hash = hash_bytes(hash, read);
  }
  return hash;
}

// Records that an op has run, and the hash of its result.
struct OpRun {
  OpId op = 0;
  std::uint64_t hash = 0;

  bool operator==(const OpRun&) const = default;
};

// Computes results as hashes. The storage of a parameter is its logical form.
class HashProgram : public OpProgram {
 public:
  void run(OpId op, const OpOperands& operands, const StepScalars& scalars, void*) override {
    std::vector<std::span<const std::byte>> reads;
    for (const AddressRange& read : operands.reads) {
      reads.push_back(memory(read));
    }
    const std::uint64_t hash = op_hash(op, scalars, reads);
    fill_from(~hash, memory(operands.workspace));
    for (std::size_t write = 0; write < operands.writes.size(); ++write) {
      fill_from(mix_seed(hash, write), memory(operands.writes[write]));
    }
    const std::lock_guard lock(mutex_);
    // No two steps read the same bytes. So if an op makes the same result again, a step has launched the op
    // twice.
    const auto [latest, first] = latest_.emplace(op, hash);
    if (first || std::exchange(latest->second, hash) != hash) {
      runs_.push_back({.op = op, .hash = hash});
    }
  }

  void pack_parameter(std::uint32_t, std::span<const float> logical, void* storage) override {
    std::memcpy(storage, logical.data(), logical.size_bytes());
  }
  void unpack_parameter(std::uint32_t, const void* storage, std::span<float> logical) override {
    std::memcpy(logical.data(), storage, logical.size_bytes());
  }

  // The runs of all ops so far, in order. A repeated launch with the same result counts once.
  std::vector<OpRun> runs() const {
    const std::lock_guard lock(mutex_);
    return runs_;
  }

 private:
  static std::span<std::byte> memory(const AddressRange& range) {
    return {pointer_to<std::byte>(range.begin), range.bytes};
  }

  mutable std::mutex mutex_;  // ops run on the stream's thread
  std::vector<OpRun> runs_;
  std::map<OpId, std::uint64_t> latest_;
};

inline void fill_batch(std::uint64_t step, std::size_t input, std::span<std::byte> bytes) {
  fill_from(mix_seed(step, input), bytes);
}

// Fresh parameters for a tape whose parameter storage is the logical form.
inline std::vector<std::vector<float>> hash_parameters(const Tape& tape) {
  std::vector<std::vector<float>> result;
  for (const TapeParameter& parameter : tape.parameters()) {
    result.emplace_back(parameter.recipe.type.elements());
    fill_from(result.size(), std::as_writable_bytes(std::span(result.back())));
  }
  return result;
}

// Runs the ops in the order of the tape, with separate memory for each value. Collectives get no step
// scalars. Sums of gradients are zero at first, and no micro-step resets them.
class Interpreter {
 public:
  explicit Interpreter(const Tape& tape) : tape_(tape) {
    for (const Value& value : tape.values()) {
      values_.emplace_back(value.bytes);
    }
    const std::vector<std::vector<float>> parameters = hash_parameters(tape);
    for (std::size_t index = 0; index < parameters.size(); ++index) {
      const auto bytes = std::as_bytes(std::span(parameters[index]));
      values_[tape.parameters()[index].value] = Bytes(bytes.begin(), bytes.end());
    }
  }

  void step(std::uint64_t number, const StepScalars& scalars) {
    for (std::size_t input = 0; input < tape_.inputs().size(); ++input) {
      fill_batch(number, input, values_[tape_.inputs()[input]]);
    }
    for (OpId id = 0; id < tape_.ops().size(); ++id) {
      const Op& op = tape_.op(id);
      if (op.phase == Phase::kUpdate && !scalars.updates()) {
        continue;
      }
      std::vector<std::span<const std::byte>> reads;
      for (const ValueId value : op.reads) {
        reads.emplace_back(values_[value]);
      }
      const std::uint64_t hash = op_hash(id, op.collective() ? StepScalars{} : scalars, reads);
      for (std::size_t write = 0; write < op.writes.size(); ++write) {
        fill_from(mix_seed(hash, write), values_[op.writes[write]]);
      }
      runs_.push_back({.op = id, .hash = hash});
    }
  }

  // Copies the parameters of another tape of the same network.
  void copy_parameters(const Interpreter& other) {
    for (std::size_t index = 0; index < tape_.parameters().size(); ++index) {
      values_[tape_.parameters()[index].value] = other.values_[other.tape_.parameters()[index].value];
    }
  }

  const Bytes& value(ValueId id) const { return values_[id]; }
  const std::vector<OpRun>& runs() const { return runs_; }

 private:
  const Tape& tape_;
  std::vector<Bytes> values_;
  std::vector<OpRun> runs_;
};

}  // namespace vdnn::testing
