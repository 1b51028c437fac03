#pragma once
// Included by two sources, each compiled for one ABI of std::string.

#include <cstdint>
#include <string>

namespace {

// c10::SourceLocation.
struct SourceLocation {
  const char* function;
  const char* file;
  std::uint32_t line;
};

void construct_error(void* constructor, void* error, const char* text) {
  using Constructor = void (*)(void* self, SourceLocation, std::string);
  reinterpret_cast<Constructor>(constructor)(
      error, {.function = "vdnn_torch_malloc", .file = "libvdnn_torch.so", .line = 0}, text);
}

}  // namespace
