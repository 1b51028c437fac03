// A program whose work is all in a library that it opens as a plugin.

#include <dlfcn.h>

#include <cstdio>

int main() {
  void* const library = dlopen(VDNN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  // The C++ function run_library().
  using Run = int (*)();
  const auto run = library == nullptr ? nullptr : reinterpret_cast<Run>(dlsym(library, "_Z11run_libraryv"));
  if (run == nullptr) {
    std::printf("failed: %s\n", dlerror());
    return 3;
  }
  return run();
}
