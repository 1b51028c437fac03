// Pushes contexts until the stand-in refuses more, and pops all of them.

#include <cuda.h>

#include "program.h"

namespace {

template <class Function>
Function* find(const char* name) {
  void* found = nullptr;
  CHECK(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, nullptr));
  return reinterpret_cast<Function*>(found);
}

std::uint64_t body() {
  auto* const push = find<CUresult(CUcontext)>("cuCtxPushCurrent");
  auto* const pop = find<CUresult(CUcontext*)>("cuCtxPopCurrent");
  int pushed = 0;
  while (push(nullptr) == CUDA_SUCCESS) {
    ++pushed;
  }
  CUcontext popped = nullptr;
  while (pop(&popped) == CUDA_SUCCESS) {
    --pushed;
  }
  if (pushed != 0) {
    throw program::Failure("pushed contexts cannot be popped");
  }
  return 0;
}

}  // namespace

int main() {
  return program::run(body);
}
