#pragma once
// The libraries that the conformance suite of ops runs over. In ops_test `cpu` with several numbers of
// threads, and `cuda` emulated with the threads of its blocks in several orders (tested_library.cpp); in
// gpu_ops_test one GPU (gpu_tested_library.cpp).

#include <initializer_list>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "tests/fakes/emulated_kernels.h"
#include "vdnn/op_library.h"

namespace vdnn::testing {

struct TestedLibrary {
  std::string device;  // as custom layers are asked
  int threads = 1;
  ThreadOrder order = ThreadOrder::kForward;

  std::unique_ptr<OpLibrary> make() const;
  // A library on the same device with one thread at a time and in order, which must give the same bits.
  std::unique_ptr<OpLibrary> make_plain() const;
  std::string name() const;
};
inline std::ostream& operator<<(std::ostream& out, const TestedLibrary& library) {
  return out << library.name();
}

// `cpu` with these numbers of threads, and `cuda`.
std::vector<TestedLibrary> tested_libraries(std::initializer_list<int> threads);
// For layers that a vendor's library computes: `cuda` with one order, since kernels of our own do little.
std::vector<TestedLibrary> vendor_tested_libraries(std::initializer_list<int> threads);

}  // namespace vdnn::testing
