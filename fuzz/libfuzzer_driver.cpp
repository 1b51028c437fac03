// Entry points for libFuzzer (https://llvm.org/docs/LibFuzzer.html). One program contains all targets. The
// name by which it is called selects the target; scripts/fuzz makes one link per target.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "fuzz/target.h"

namespace {

const vdnn::fuzz::Target* chosen = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(const int* /*argc*/, char*** argv) {
  const std::string name = std::filesystem::path((*argv)[0]).filename().string();
  const auto& targets = vdnn::fuzz::targets();
  const auto found = std::ranges::find(targets, name, &vdnn::fuzz::Target::name);
  if (found == targets.end()) {
    std::fprintf(stderr, "run this program through a link with the name of a target; see scripts/fuzz\n");
    std::exit(2);
  }
  chosen = &*found;
  return 0;
}

// An uncaught exception ends the process, and libFuzzer reports a finding.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  chosen->run({data, size});
  return 0;
}
