// Requests more memory from PyTorch's hook than there is, in a process with some libraries of PyTorch, and
// prints the exception.
//
//   torch_refusal ALLOCATOR [LIBRARY ...]

#include <dlfcn.h>
#include <sys/types.h>

#include <cstdio>
#include <exception>
#include <initializer_list>
#include <typeinfo>
#include <utility>

int main(int count, char** arguments) {
  for (int i = 2; i < count; ++i) {
    if (dlopen(arguments[i], RTLD_NOW | RTLD_LOCAL) == nullptr) {
      std::printf("%s\n", dlerror());
      return 1;
    }
  }
  void* const library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  auto* const allocate =
      reinterpret_cast<void* (*)(ssize_t, int, void*)>(dlsym(library, "vdnn_torch_malloc"));
  for (const auto& [bytes, gpu] : {std::pair{ssize_t{1} << 40, 0}, std::pair{ssize_t{1}, 99}}) {
    try {
      std::printf("%s\n", allocate(bytes, gpu, nullptr) == nullptr ? "null" : "a block");
    } catch (const std::exception& error) {
      std::printf("%s: %s\n", typeid(error).name(), error.what());
    }
  }
  return 0;
}
