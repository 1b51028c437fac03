// Runs the suite on one GPU, which the linking program chooses.

#include <utility>

#include "tests/ops/staged_ops.h"
#include "tests/ops/tested_gpus.h"
#include "tests/ops/tested_library.h"

namespace vdnn::testing {

namespace {

// Opening the vendors' libraries takes longer than a test case. The test never closes them, since at the end
// of a program CUDA may be gone before the objects made with it.
OpLibrary& staged_ops() {
  static OpLibrary* const kStaged = make_staged_ops(tested_gpus()).release();
  return *kStaged;
}

class SharedOps final : public OpLibrary {
 public:
  const OpCatalog& catalog() const override { return staged_ops().catalog(); }
  std::unique_ptr<OpProgram> compile(const Tape& tape, std::span<const std::uint32_t> algorithms) override {
    return staged_ops().compile(tape, algorithms);
  }
};

}  // namespace

std::unique_ptr<OpLibrary> TestedLibrary::make() const {
  return std::make_unique<SharedOps>();
}

std::unique_ptr<OpLibrary> TestedLibrary::make_plain() const {
  return make();
}

std::string TestedLibrary::name() const {
  return "gpu";
}

std::vector<TestedLibrary> vendor_tested_libraries(std::initializer_list<int>) {
  return {{.device = "cuda"}};
}

std::vector<TestedLibrary> tested_libraries(std::initializer_list<int> threads) {
  return vendor_tested_libraries(threads);
}

}  // namespace vdnn::testing
