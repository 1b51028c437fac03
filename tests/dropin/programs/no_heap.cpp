// A program in which only the preloaded library's heap allocations fail: "no_heap N" makes every Nth one
// fail.

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "program.h"

namespace {

std::atomic<std::uint64_t> every = 0;
std::atomic<std::uint64_t> asked = 0;

bool is_preloaded(const void* caller) {
  Dl_info library{};
  return dladdr(caller, &library) != 0 && std::strstr(library.dli_fname, "libvdnn_preload") != nullptr;
}

std::uint64_t body() {
  program::Checksum sum;
  for (int round = 0; round < 30; ++round) {
    const program::Stream stream;
    const std::size_t bytes = 30'000 + 10'000 * static_cast<std::size_t>(round % 3);
    const program::PinnedBuffer host(bytes, 0);
    const program::Buffer buffer(bytes);
    const program::Block block(bytes, stream.handle);
    const std::vector<unsigned char> content = program::pattern(bytes, static_cast<std::uint64_t>(round));
    std::memcpy(host.data, content.data(), bytes);
    CHECK(cudaMemcpyAsync(block.data, host.data, bytes, cudaMemcpyHostToDevice, stream.handle));
    CHECK(cudaMemcpyAsync(buffer.data, block.data, bytes, cudaMemcpyDeviceToDevice, stream.handle));
    CHECK(cudaMemcpyAsync(host.data, buffer.data, bytes, cudaMemcpyDeviceToHost, stream.handle));
    CHECK(cudaStreamSynchronize(stream.handle));
    sum.add(host.data, bytes);
    std::size_t free = 0;
    std::size_t total = 0;
    CHECK(cudaMemGetInfo(&free, &total));
  }
  return sum.value();
}

}  // namespace

void* operator new(std::size_t bytes) {
  if (every != 0 && is_preloaded(__builtin_return_address(0)) && ++asked % every == 0) {
    throw std::bad_alloc();
  }
  void* const memory = std::malloc(std::max<std::size_t>(bytes, 1));
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(std::max<std::size_t>(bytes, 1));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

int main(int count, char** arguments) {
  every = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 0;
  return program::run(body);
}
