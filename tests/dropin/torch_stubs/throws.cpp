// The library that throws the exception defines its type and virtual table.
#include "error.h"

extern "C" __attribute__((visibility("default"))) void throw_out_of_memory() {
  throw c10::OutOfMemoryError({"function", "file", 1}, "theirs");
}
