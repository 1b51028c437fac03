#pragma once
// The engines that cuDNN has for a convolution on a GPU, each with the workspace that it wants. cuDNN's graph
// API plans from serialised device properties alone: no device, no driver and no handle are needed, so that
// plans can be made and tested on any machine that has the library (`share/devices/` has such properties).
//
// cuDNN is opened when it is first asked for (`dlopen`), so that programs start where it is not installed;
// cudnn-frontend, whose headers take a minute to compile, is included by one source, and nothing of either
// shows here.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/ops/cuda/engine_source.h"

namespace vdnn::cuda {

// The libcudnn that is loaded, "9.19.0". Throws DeviceError where it cannot be loaded, or was not there to
// build with.
std::string cudnn_version();
// The cudnn-frontend that was built with, "1.23.0": names of engines are its words. Throws likewise.
std::string cudnn_frontend_version();

// In cuDNN's order: what its heuristic recommends, best first, then what is left to fall back to. The generic
// engine that ends the recommendations (is_generic_engine()) comes last of all, as in cuDNN's own list of
// fallbacks: otherwise it would hide faster ones that follow, since it needs no workspace. Each engine could
// be built; no name comes twice. list() throws NoEngine with cuDNN's reason.
class ConvolutionEngines final : public EngineSource {
 public:
  // `device_properties`: JSON as cuDNN writes it. Throws DeviceError where cuDNN cannot be loaded or cannot
  // plan without a device (before 9.8), InvalidArgument where it refuses the properties.
  explicit ConvolutionEngines(std::string_view device_properties);
  ~ConvolutionEngines() override;
  ConvolutionEngines(const ConvolutionEngines&) = delete;
  ConvolutionEngines& operator=(const ConvolutionEngines&) = delete;

  std::string name() const override;
  // Of the operands in the order in which cuDNN is given their addresses: that of VendorOp::run(), the write
  // last. Throws as list().
  std::vector<Dims> operand_shapes(const EngineQuestion& question) const;

 private:
  std::vector<Engine> do_list(const EngineQuestion& question) const override;

  struct Device;
  std::unique_ptr<const Device> device_;
};

// Those of the calling thread's GPU, which is number `ordinal`. Throws DeviceError where there is none or
// cuDNN cannot be loaded.
std::unique_ptr<const EngineSource> engines_of_this_gpu(int ordinal);

}  // namespace vdnn::cuda
