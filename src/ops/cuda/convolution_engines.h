#pragma once
// The engines that cuDNN has for a convolution on a GPU, each with its workspace. cuDNN's graph API can plan
// from serialised device properties alone, without device, driver or handle. So any machine with the library
// can make and test plans (`share/devices/` contains such properties).
//
// cuDNN is opened at its first use (`dlopen`), so that programs start without it. Only one source includes
// cudnn-frontend, whose headers take a minute to compile. This header exposes neither cudnn-frontend nor
// cuDNN.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/ops/cuda/engine_source.h"

namespace vdnn::cuda {

// The version of the loaded libcudnn, for example "9.19.0". Throws DeviceError if libcudnn cannot be loaded,
// or if vdnn was built without cuDNN.
std::string cudnn_version();
// The version of the build's cudnn-frontend, for example "1.23.0", which determines the names of engines.
// Throws what cudnn_version() throws.
std::string cudnn_frontend_version();

// Engines in cuDNN's order: first the engines that its heuristic recommends, best first, then its fallbacks.
// If the generic engine (is_generic_engine()) is the last recommendation, it is moved to the end of the list,
// as in cuDNN's own list of fallbacks. The generic engine needs no workspace and would hide faster engines
// that follow it. Each listed engine has been built, and names are unique. list() throws NoEngine with
// cuDNN's reason.
class ConvolutionEngines final : public EngineSource {
 public:
  // `device_properties` is JSON as cuDNN writes it. Throws DeviceError if cuDNN cannot be loaded or, in
  // versions older than 9.8, cannot plan without a device. Throws InvalidArgument if cuDNN refuses the
  // properties.
  explicit ConvolutionEngines(std::string_view device_properties);
  ~ConvolutionEngines() override;
  ConvolutionEngines(const ConvolutionEngines&) = delete;
  ConvolutionEngines& operator=(const ConvolutionEngines&) = delete;

  std::string name() const override;
  // The shapes of the operands in the order in which cuDNN gets their addresses. It is the order of
  // VendorOp::run(), with the write last. Throws what list() throws.
  std::vector<Dims> operand_shapes(const EngineQuestion& question) const;

 private:
  std::vector<Engine> do_list(const EngineQuestion& question) const override;

  struct Device;
  std::unique_ptr<const Device> device_;
};

// The engines of the calling thread's GPU, whose number is `ordinal`. Throws DeviceError if there is no GPU
// or cuDNN cannot be loaded.
std::unique_ptr<const EngineSource> engines_of_this_gpu(int ordinal);

}  // namespace vdnn::cuda
