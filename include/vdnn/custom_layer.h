#pragma once
// A layer from outside the library. A recipe (op_catalog.h) describes it, as for the library's own layers:
// its parameters, the values that its forward pass saves, and the ops of both passes with operands, workspace
// and cost. The layer is then treated like any other: its feature maps are offloaded, its operands checked,
// its parameters updated and written to checkpoints. A simulated device uses the description alone and never
// calls run().
//
//   class Square : public CustomLayer { ... };
//   x = net.custom("square", {x}, std::make_shared<Square>());
//
// Tensors and parameters are fp32, dense and channels last. If other layers have fp16 feature maps, dY
// belongs to a scaled loss (LossScaling), so gradients must be linear in dY. run() may access only the
// operands that its op declares. SessionOptions::check_accesses turns any other access into an error that
// names the op.

#include <cstdint>
#include <span>
#include <string>

#include "vdnn/op_catalog.h"
#include "vdnn/op_operands.h"

namespace vdnn {

struct CustomQuestion {
  std::span<const TensorType> inputs;
  TensorType output;
  // The device of run()'s memory and streams: "cpu" or "cuda"; "sim" is a simulated GPU, which never calls
  // run().
  std::string device;
  int threads = 1;  // that run() may use on `cpu`
  Mode mode = Mode::kTraining;
};

struct CustomLaunch {
  Direction direction = Direction::kForward;
  std::uint32_t position = 0;  // of the op in LayerRecipe::forward (kForward) or ::backward
  std::uint32_t algorithm = 0;
  std::span<const TensorType> inputs;  // of the layer
  TensorType output;
  OpOperands operands;  // in the order of the recipe
  StepScalars scalars;
  void* native_stream = nullptr;  // a cudaStream_t to submit work to; null on cpu
  int threads = 1;
};

// Immutable once in a network. Any thread may call describe() and run(), and several executors may call run()
// at once.
class CustomLayer {
 public:
  virtual ~CustomLayer() = default;

  // The layer's name in errors and reports.
  virtual std::string kind() const = 0;
  // The type of the layer's feature map. Throws InvalidArgument for inputs that the layer does not support.
  virtual TensorType output(std::span<const TensorType> inputs) const = 0;
  // The recipe for inference has the same parameters, no saved values and no backward pass. Parameters with
  // storage_bytes 0 are stored densely. Throws InvalidArgument for a device without an implementation.
  virtual LayerRecipe describe(const CustomQuestion& question) const = 0;
  // Runs one op. On cpu it returns when the op is done; on cuda it submits the op to the stream. An exception
  // surfaces as a DeviceError at the next wait.
  virtual void run(const CustomLaunch& launch) const = 0;
};

}  // namespace vdnn
