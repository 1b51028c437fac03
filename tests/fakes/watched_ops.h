#pragma once
// A library of ops that passes each op and its operands to an observer before the op runs.

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "src/ops/forwarding_program.h"
#include "vdnn/op_library.h"

namespace vdnn::testing {

using OpWatch = std::function<void(const std::string& op, const OpOperands& operands, void* native_stream)>;

// Launches a kernel with the op's name and operands on a stream of a FakeCuda, so that the fake checks the
// op's order. Throws DeviceError if the launch fails.
void declare_on_fake_cuda(const std::string& op, const OpOperands& operands, void* native_stream);

class WatchedProgram : public ops::ForwardingProgram {
 public:
  WatchedProgram(std::unique_ptr<OpProgram> program, const Tape& tape, OpWatch watch)
      : ForwardingProgram(*program), program_(std::move(program)), tape_(tape), watch_(std::move(watch)) {}

  void run(OpId op, const OpOperands& operands, const StepScalars& scalars, void* native_stream) override {
    watch_(tape_.op(op).name, operands, native_stream);
    ForwardingProgram::run(op, operands, scalars, native_stream);
  }

 private:
  std::unique_ptr<OpProgram> program_;
  const Tape& tape_;
  OpWatch watch_;
};

class WatchedOps final : public OpLibrary {
 public:
  WatchedOps(std::unique_ptr<OpLibrary> library, OpWatch watch)
      : library_(std::move(library)), watch_(std::move(watch)) {}

  const OpCatalog& catalog() const override { return library_->catalog(); }
  std::unique_ptr<OpProgram> compile(const Tape& tape, std::span<const std::uint32_t> algorithms) override {
    return std::make_unique<WatchedProgram>(library_->compile(tape, algorithms), tape, watch_);
  }

 private:
  std::unique_ptr<OpLibrary> library_;
  OpWatch watch_;
};

}  // namespace vdnn::testing
