// A program that does all with a library of its own, opened as plugins are.

#include <dlfcn.h>

#include <cstdio>

int main() {
  void* const library = dlopen(VDNN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  // run_library() of C++.
  using Run = int (*)();
  const auto run = library == nullptr ? nullptr : reinterpret_cast<Run>(dlsym(library, "_Z11run_libraryv"));
  if (run == nullptr) {
    std::printf("failed: %s\n", dlerror());
    return 3;
  }
  return run();
}
