#pragma once
// The mathematics of the layers on one kind of device: what an executor is handed. A library knows its
// catalog (what ops there are) and compiles a tape with chosen algorithms into a program that can run each
// op.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "vdnn/error.h"
#include "vdnn/op_catalog.h"
#include "vdnn/op_operands.h"
#include "vdnn/tape.h"

namespace vdnn {

// Room for what kernels take from StepScalars in a step that may be replayed.
inline constexpr std::uint64_t kStepNumbersBytes = 128;

// Belongs to one tape and one choice of algorithms. Ops of one program are run by one stream at a time.
class OpProgram {
 public:
  virtual ~OpProgram() = default;

  virtual void run(OpId op, const OpOperands& operands, const StepScalars& scalars, void* native_stream) = 0;

  // What a replay of a captured step gives its kernels by value is what it was when the step was captured.
  // Empty: this program's ops take nothing from StepScalars that way where they are given
  // OpOperands::step_numbers; or the reason why they do.
  virtual std::string why_not_replay() const {
    return "its ops take what changes from step to step by value";
  }
  // For a program that can be replayed: what is to lie at OpOperands::step_numbers. Throws InvalidArgument
  // where it cannot.
  virtual void write_step_numbers(const StepScalars&, std::span<std::byte, kStepNumbersBytes>) const {
    throw InvalidArgument("a program that cannot be replayed: " + why_not_replay());
  }

  // A parameter between its logical form (dense fp32; filters in KRSC order) and the device's storage, both
  // in memory that the host can address. Sizes: elements of the recipe's type; storage_bytes.
  virtual void pack_parameter(std::uint32_t parameter, std::span<const float> logical, void* storage) = 0;
  virtual void unpack_parameter(std::uint32_t parameter, const void* storage, std::span<float> logical) = 0;
};

class OpLibrary {
 public:
  virtual ~OpLibrary() = default;
  virtual const OpCatalog& catalog() const = 0;
  // `algorithms`: an index for each op of the tape, which must outlive the program.
  virtual std::unique_ptr<OpProgram> compile(const Tape& tape, std::span<const std::uint32_t> algorithms) = 0;
};

}  // namespace vdnn
