#pragma once
// The engines that cuDNN has for a convolution on a GPU, each with its workspace. cuDNN's graph API can plan
// from serialised device properties alone, without device, driver or handle. So plans can be made and tested
// on any machine that has the library (`share/devices/` has such properties).
//
// cuDNN is opened at its first use (`dlopen`), so that programs start without it. One source includes
// cudnn-frontend, whose headers take a minute to compile; neither it nor cuDNN is visible here.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/ops/cuda/engine_source.h"

namespace vdnn::cuda {

// Version of the loaded libcudnn, "9.19.0". Throws DeviceError if it cannot be loaded, or the build did not
// have it.
std::string cudnn_version();
// Version of the cudnn-frontend of the build, "1.23.0", which makes the names of engines. Throws likewise.
std::string cudnn_frontend_version();

// Engines in cuDNN's order: first those that its heuristic recommends, best first, then its fallbacks. If the
// generic engine (is_generic_engine()) ends the recommendations, it is moved to the end of the list, as in
// cuDNN's own list of fallbacks: it needs no workspace and would hide faster engines that follow. Each engine
// could be built, and names are unique. list() throws NoEngine with cuDNN's reason.
class ConvolutionEngines final : public EngineSource {
 public:
  // `device_properties` is JSON as cuDNN writes it. Throws DeviceError if cuDNN cannot be loaded or cannot
  // plan without a device (before 9.8), InvalidArgument if it refuses the properties.
  explicit ConvolutionEngines(std::string_view device_properties);
  ~ConvolutionEngines() override;
  ConvolutionEngines(const ConvolutionEngines&) = delete;
  ConvolutionEngines& operator=(const ConvolutionEngines&) = delete;

  std::string name() const override;
  // For the operands in the order of the addresses that cuDNN gets: that of VendorOp::run(), the write last.
  // Throws as list() does.
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
