#include "allocator/dropin/torch/torch_error.h"

#include <dlfcn.h>

#include <cstddef>
#include <stdexcept>

namespace vdnn {

namespace {

// More than the size of c10::Error in any release (128 bytes in 2.15).
constexpr std::size_t kErrorBytes = 1024;

// A library that is loaded in the process, or null.
void* loaded(const char* name) {
  return dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
}

void* find(void* library, const char* symbol) {
  return library == nullptr ? nullptr : dlsym(library, symbol);
}

struct TorchErrors {
  TorchErrors() {
    void* const base = loaded("libc10.so");
    is_there = base != nullptr;
    construct = construct_error_with_cxx11_string;
    constructor = find(
        base, "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");
    if (constructor == nullptr) {
      construct = construct_error_with_cow_string;
      constructor = find(base, "_ZN3c105ErrorC2ENS_14SourceLocationESs");
    }
    // If OutOfMemoryError defines no virtual function of its own, the libraries that throw it contain its
    // virtual table.
    for (const char* const library : {"libc10.so", "libc10_cuda.so"}) {
      if (table == nullptr) {
        table = static_cast<void**>(find(loaded(library), "_ZTVN3c1016OutOfMemoryErrorE"));
      }
    }
    // From PyTorch's own C++ runtime, so that PyTorch catches the exception although this library may
    // contain another runtime.
    allocate = reinterpret_cast<decltype(allocate)>(find(base, "__cxa_allocate_exception"));
    throw_it = reinterpret_cast<decltype(throw_it)>(find(base, "__cxa_throw"));
  }

  bool is_complete() const {
    return constructor != nullptr && table != nullptr && allocate != nullptr && throw_it != nullptr;
  }

  bool is_there = false;
  void* constructor = nullptr;
  void (*construct)(void*, void*, const char*) = nullptr;
  // The class's virtual table: the offset to the whole object, the type, then the functions, of which the
  // complete destructor is the first.
  void** table = nullptr;
  void* (*allocate)(std::size_t) = nullptr;
  void (*throw_it)(void*, void*, void (*)(void*)) = nullptr;
};

// Looked up once: PyTorch is loaded before a program can change its allocator.
const TorchErrors& torch_errors() {
  static const TorchErrors of_process;
  return of_process;
}

}  // namespace

void throw_torch_out_of_memory(const char* text) {
  const TorchErrors& torch = torch_errors();
  if (!torch.is_complete()) {
    throw_torch_runtime_error(text);
    return;
  }
  void* const error = torch.allocate(kErrorBytes);
  torch.construct(torch.constructor, error, text);
  constexpr std::size_t kType = 1;
  constexpr std::size_t kFunctions = 2;
  *static_cast<void**>(error) = torch.table + kFunctions;
  torch.throw_it(error, torch.table[kType], reinterpret_cast<void (*)(void*)>(torch.table[kFunctions]));
}

void throw_torch_runtime_error(const char* text) {
  if (torch_errors().is_there) {
    throw std::runtime_error(text);
  }
}

}  // namespace vdnn
