#pragma once
// The libraries that the conformance suite of ops tests. ops_test has `cpu` with several numbers of threads,
// and an emulated `cuda` with several orders of a block's threads (tested_library.cpp). gpu_ops_test has one
// GPU (gpu_tested_library.cpp).

#include <initializer_list>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "tests/fakes/emulated_kernels.h"
#include "vdnn/op_library.h"

namespace vdnn::testing {

struct TestedLibrary {
  std::string device;  // the name that custom layers receive
  int threads = 1;
  ThreadOrder order = ThreadOrder::kForward;

  std::unique_ptr<OpLibrary> make() const;
  // A library on the same device that runs one thread at a time, in order. Its results must be the same bits.
  std::unique_ptr<OpLibrary> make_plain() const;
  std::string name() const;
};
inline std::ostream& operator<<(std::ostream& out, const TestedLibrary& library) {
  return out << library.name();
}

// `cpu` with each of these numbers of threads, and `cuda`.
std::vector<TestedLibrary> tested_libraries(std::initializer_list<int> threads);
// The libraries for layers that a vendor's library computes. `cuda` has one order only, since our own kernels
// do little there.
std::vector<TestedLibrary> vendor_tested_libraries(std::initializer_list<int> threads);

}  // namespace vdnn::testing
