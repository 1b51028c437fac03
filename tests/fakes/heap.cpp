#include "tests/fakes/heap.h"

#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace vdnn {

namespace {

thread_local std::uint64_t of_thread = 0;
std::atomic<std::int64_t> blocks = 0;
std::atomic<bool> armed = false;
std::atomic<std::uint64_t> while_armed = 0;
std::atomic<std::uint64_t> failing = 0;
std::atomic<bool> for_good = false;

// The address range of oneDNN's code; empty if it is not loaded.
struct Code {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

int find_onednn(dl_phdr_info* library, std::size_t /*bytes*/, void* found) {
  if (std::strstr(library->dlpi_name, "libdnnl") == nullptr) {
    return 0;
  }
  for (int part = 0; part < library->dlpi_phnum; ++part) {
    const auto& header = library->dlpi_phdr[part];
    if (header.p_type == PT_LOAD && (header.p_flags & PF_X) != 0) {
      const std::uintptr_t begin = library->dlpi_addr + header.p_vaddr;
      *static_cast<Code*>(found) = {.begin = begin, .end = begin + header.p_memsz};
    }
  }
  return 1;
}

bool called_by_onednn(const void* caller) {
  static const Code code = [] {
    Code found;
    dl_iterate_phdr(find_onednn, &found);
    return found;
  }();
  const auto address = reinterpret_cast<std::uintptr_t>(caller);
  return address >= code.begin && address < code.end;
}

template <class Allocate>
void* counted(const void* caller, const Allocate& allocate) {
  ++of_thread;
  if (armed.load(std::memory_order_relaxed) && !called_by_onednn(caller)) {
    const std::uint64_t number = ++while_armed;
    if (number == failing || (for_good && number > failing)) {
      throw std::bad_alloc();
    }
  }
  void* const memory = allocate();
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  ++blocks;
  return memory;
}

void* plain(const void* caller, std::size_t bytes) {
  return counted(caller, [&] { return std::malloc(std::max<std::size_t>(bytes, 1)); });
}

// aligned_alloc() requires whole multiples of the alignment.
void* aligned(const void* caller, std::size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return counted(caller, [&] {
    return std::aligned_alloc(unit, (std::max<std::size_t>(bytes, 1) + unit - 1) / unit * unit);
  });
}

template <class Allocate>
void* or_null(const Allocate& allocate) {
  try {
    return allocate();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void give_back(void* memory) {
  if (memory != nullptr) {
    --blocks;
    std::free(memory);
  }
}

}  // namespace

std::uint64_t heap_allocations() {
  return of_thread;
}

std::uint64_t heap_blocks() {
  return static_cast<std::uint64_t>(blocks.load());
}

HeapFailure::HeapFailure(std::uint64_t fail_at, Kind kind) {
  for_good = kind == Kind::kFromThenOn;
  while_armed = 0;
  failing = fail_at;
  armed = true;
}

HeapFailure::~HeapFailure() {
  armed = false;
}

std::uint64_t HeapFailure::allocations() const {
  return while_armed;
}

}  // namespace vdnn

// All forms of the operators are replaced, because memory of one form may be freed through another, and
// sanitizers have their own operators.
void* operator new(std::size_t bytes) {
  return vdnn::plain(__builtin_return_address(0), bytes);
}
void* operator new[](std::size_t bytes) {
  return vdnn::plain(__builtin_return_address(0), bytes);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return vdnn::aligned(__builtin_return_address(0), bytes, alignment);
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return vdnn::aligned(__builtin_return_address(0), bytes, alignment);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return vdnn::or_null([&, caller = __builtin_return_address(0)] { return vdnn::plain(caller, bytes); });
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return vdnn::or_null([&, caller = __builtin_return_address(0)] { return vdnn::plain(caller, bytes); });
}

void operator delete(void* memory) noexcept {
  vdnn::give_back(memory);
}
void operator delete[](void* memory) noexcept {
  vdnn::give_back(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  vdnn::give_back(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  vdnn::give_back(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  vdnn::give_back(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  vdnn::give_back(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  vdnn::give_back(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  vdnn::give_back(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  vdnn::give_back(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  vdnn::give_back(memory);
}
