#include "tests/ops/tested_library.h"

#include "vdnn/cpu_ops.h"

namespace vdnn::testing {

namespace {

const char* name_of(ThreadOrder order) {
  switch (order) {
    case ThreadOrder::kForward:
      return "forward";
    case ThreadOrder::kReversed:
      return "reversed";
    case ThreadOrder::kRandom:
      break;
  }
  return "random";
}

}  // namespace

std::unique_ptr<OpLibrary> TestedLibrary::make() const {
  return device == "cpu" ? make_cpu_ops({.threads = threads}) : make_emulated_cuda_ops(order);
}

std::unique_ptr<OpLibrary> TestedLibrary::make_plain() const {
  return TestedLibrary{.device = device}.make();
}

std::string TestedLibrary::name() const {
  return device == "cpu" ? "cpu_threads" + std::to_string(threads)
                         : device + "_threads_" + std::string(name_of(order));
}

namespace {

std::vector<TestedLibrary> cpu_libraries(std::initializer_list<int> threads) {
  std::vector<TestedLibrary> libraries;
  for (const int each : threads) {
    libraries.push_back({.device = "cpu", .threads = each});
  }
  return libraries;
}

}  // namespace

std::vector<TestedLibrary> vendor_tested_libraries(std::initializer_list<int> threads) {
  std::vector<TestedLibrary> libraries = cpu_libraries(threads);
  libraries.push_back({.device = "cuda", .order = ThreadOrder::kRandom});
  return libraries;
}

std::vector<TestedLibrary> tested_libraries(std::initializer_list<int> threads) {
  std::vector<TestedLibrary> libraries = cpu_libraries(threads);
  for (const ThreadOrder order : {ThreadOrder::kForward, ThreadOrder::kReversed, ThreadOrder::kRandom}) {
    libraries.push_back({.device = "cuda", .order = order});
  }
  return libraries;
}

}  // namespace vdnn::testing
