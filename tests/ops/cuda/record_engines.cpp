// Records the engines that cuDNN reports for the zoo's convolutions on a GPU, in the library's file format:
//   record_engines h200 share/engines/h200.json

#include <algorithm>
#include <array>
#include <exception>
#include <fstream>
#include <iostream>
#include <string>

#include "src/ops/cuda/convolution_engines.h"
#include "src/ops/cuda/known_gpus.h"
#include "src/ops/cuda/recorded_engines.h"
#include "tests/ops/cuda/zoo_questions.h"

namespace vdnn::cuda {
namespace {

void record(const std::string& gpu, const std::string& path) {
  const auto known = std::ranges::find(known_gpus(), gpu, &KnownGpu::name);
  if (known == known_gpus().end()) {
    throw InvalidArgument("there are no properties of a '" + gpu + "' in share/devices");
  }
  const RecordedEngines engines(ConvolutionEngines(known->cudnn_properties), recorded_questions());
  std::ofstream file(path);
  file << engines.text();
  file.close();
  if (!file) {
    throw DataError(path + ": cannot be written");
  }
}

}  // namespace
}  // namespace vdnn::cuda

int main(int count, char** arguments) {
  if (count != 3) {
    std::cerr << "usage: record_engines GPU FILE\n";
    return 2;
  }
  try {
    vdnn::cuda::record(arguments[1], arguments[2]);
  } catch (const std::exception& error) {
    std::cerr << "record_engines: " << error.what() << "\n";
    return 1;
  }
}
