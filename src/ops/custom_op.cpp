#include "src/ops/custom_op.h"

#include <exception>
#include <utility>

#include "vdnn/error.h"

namespace vdnn::ops {

namespace {

// Call it only within an exception handler. Callers know neither the exception types of the layer nor when
// its op ran, so every exception is reported as a failure of the device at this op.
[[noreturn]] void fail_running(const std::string& where) {
  try {
    throw;
  } catch (const DeviceError& error) {
    std::throw_with_nested(DeviceError(where + error.what(), error.lost()));
  } catch (const std::exception& error) {
    std::throw_with_nested(DeviceError(where + error.what()));
  } catch (...) {
    std::throw_with_nested(DeviceError(where + "an exception that is no std::exception"));
  }
}

}  // namespace

CustomOp::CustomOp(const CustomSpec& spec, const KernelRequest& request, std::string device, int threads)
    : layer_(spec.layer),
      device_(std::move(device)),
      op_(request.op.name),
      direction_(request.op.direction),
      position_(request.op.position),
      algorithm_(request.algorithm),
      inputs_(request.op.layer_inputs),
      output_(request.op.layer_outputs[0]),
      threads_(threads) {}

void CustomOp::run(const OpOperands& operands, const StepScalars& scalars, void* native_stream) const {
  try {
    layer_->run({.direction = direction_,
                 .position = position_,
                 .algorithm = algorithm_,
                 .inputs = inputs_,
                 .output = output_,
                 .operands = operands,
                 .scalars = scalars,
                 .native_stream = native_stream,
                 .threads = threads_});
  } catch (...) {
    fail_running(device_ + ": op '" + op_ + "' of custom layer '" + layer_->kind() + "' failed: ");
  }
}

}  // namespace vdnn::ops
