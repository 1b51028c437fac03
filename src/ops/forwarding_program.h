#pragma once
// A program that forwards every call to another program: a base class for programs that change or add one
// function.

#include <span>
#include <string>

#include "vdnn/op_library.h"

namespace vdnn::ops {

// `below`, which receives the calls, must outlive this program.
class ForwardingProgram : public OpProgram {
 public:
  explicit ForwardingProgram(OpProgram& below) : below_(below) {}

  void run(OpId op, const OpOperands& operands, const StepScalars& scalars, void* native_stream) override {
    below_.run(op, operands, scalars, native_stream);
  }
  std::string why_not_replay() const override { return below_.why_not_replay(); }
  void write_step_numbers(const StepScalars& scalars,
                          std::span<std::byte, kStepNumbersBytes> numbers) const override {
    below_.write_step_numbers(scalars, numbers);
  }
  void pack_parameter(std::uint32_t parameter, std::span<const float> logical, void* storage) override {
    below_.pack_parameter(parameter, logical, storage);
  }
  void unpack_parameter(std::uint32_t parameter, const void* storage, std::span<float> logical) override {
    below_.unpack_parameter(parameter, storage, logical);
  }

 private:
  OpProgram& below_;
};

}  // namespace vdnn::ops
