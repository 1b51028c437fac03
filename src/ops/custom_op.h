#pragma once
// An op of a custom layer, which a program defines outside the library, on any device.

#include <memory>
#include <string>
#include <vector>

#include "src/ops/kernel_request.h"
#include "vdnn/custom_layer.h"

namespace vdnn::ops {

class CustomOp {
 public:
  // `device`: see CustomQuestion.
  CustomOp(const CustomSpec& spec, const KernelRequest& request, std::string device, int threads);

  // Any exception of the layer becomes a DeviceError that names op and layer.
  void run(const OpOperands& operands, const StepScalars& scalars, void* native_stream) const;

 private:
  std::shared_ptr<const CustomLayer> layer_;
  std::string device_;
  std::string op_;
  Direction direction_;
  std::uint32_t position_;
  std::uint32_t algorithm_;
  std::vector<TensorType> inputs_;
  TensorType output_;
  int threads_;
};

}  // namespace vdnn::ops
