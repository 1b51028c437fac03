#pragma once
// The mathematics of the layers on one kind of device, as an executor uses it. A library has a catalog of ops
// and compiles a tape with chosen algorithms into a program that can run each op.

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

// Size of the StepScalars, and of numbers derived from them, that kernels read from device memory in a step
// that may be replayed.
inline constexpr std::uint64_t kStepNumbersBytes = 128;

// A tape that is compiled with one choice of algorithms. Run the ops of a program on one stream at a time.
class OpProgram {
 public:
  virtual ~OpProgram() = default;

  // Runs an op. On cpu it returns when the op is done; on a GPU it submits the op to `native_stream` (a
  // cudaStream_t).
  virtual void run(OpId op, const OpOperands& operands, const StepScalars& scalars, void* native_stream) = 0;

  // Empty if captured steps of this program can be replayed, otherwise the reason. A replay passes kernels
  // the argument values of the capture. So ops of a program that can be replayed read all StepScalars from
  // OpOperands::step_numbers.
  virtual std::string why_not_replay() const {
    return "its ops read the numbers that change from step to step by value";
  }
  // Writes the contents of OpOperands::step_numbers for a step. Throws InvalidArgument if the program cannot
  // be replayed.
  virtual void write_step_numbers(const StepScalars&, std::span<std::byte, kStepNumbersBytes>) const {
    throw InvalidArgument("a program that cannot be replayed: " + why_not_replay());
  }

  // Convert a parameter between its logical form (dense fp32; filters in KRSC order) and the device's
  // storage, both in memory that the host can address. `logical` has the elements of the recipe's type,
  // `storage` has storage_bytes.
  virtual void pack_parameter(std::uint32_t parameter, std::span<const float> logical, void* storage) = 0;
  virtual void unpack_parameter(std::uint32_t parameter, const void* storage, std::span<float> logical) = 0;
};

class OpLibrary {
 public:
  virtual ~OpLibrary() = default;
  virtual const OpCatalog& catalog() const = 0;
  // `algorithms`: by op, an index into Op::algorithms. The tape must outlive the program.
  virtual std::unique_ptr<OpProgram> compile(const Tape& tape, std::span<const std::uint32_t> algorithms) = 0;
};

}  // namespace vdnn
