#include "src/cli/version.h"

#include <dnnl_version.h>

#include <array>
#include <utility>

#include "vdnn_commit.h"

namespace vdnn {

namespace {

std::string onednn_version() {
  return std::to_string(DNNL_VERSION_MAJOR) + "." + std::to_string(DNNL_VERSION_MINOR) + "." +
         std::to_string(DNNL_VERSION_PATCH);
}

}  // namespace

std::string_view version() {
  return VDNN_VERSION;
}

std::string version_text() {
  std::string text = "vdnn " + std::string(version()) + ", commit " + VDNN_COMMIT;
  const std::array<std::pair<const char*, std::string>, 5> libraries{{{"oneDNN", onednn_version()},
                                                                      {"CUDA toolkit", VDNN_CUDA_VERSION},
                                                                      {"cuDNN", VDNN_CUDNN_VERSION},
                                                                      {"NCCL", VDNN_NCCL_VERSION},
                                                                      {"MPI", VDNN_MPI_VERSION}}};
  for (const auto& [name, version] : libraries) {
    text += std::string("\n").append(name).append(" ").append(version.empty() ? "none" : version);
  }
  return text;
}

}  // namespace vdnn
