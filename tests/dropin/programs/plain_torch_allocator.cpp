// An allocator for PyTorch without a cache: cudaMalloc and cudaFree. Since cudaFree synchronises, the
// allocator need not know the streams that read a freed block. A graph's memory is kept until the graph's
// pool is released. Supports one GPU and one thread.

#include <cuda_runtime_api.h>
#include <sys/types.h>

#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace {

using PoolId = std::pair<unsigned long long, unsigned long long>;

struct Block {
  std::size_t bytes = 0;
  bool of_graph = false;
};

struct State {
  std::size_t most = ~std::size_t{0};
  std::size_t live_bytes = 0;
  std::map<void*, Block> blocks;
  std::vector<void*> freed;                  // kept until the pool's release
  std::function<bool(cudaStream_t)> filter;  // empty: no stream is captured
  bool pool_is_there = false;
};

State& state() {
  static State of_process;
  return of_process;
}

void give_back(void* data) {
  const auto found = state().blocks.find(data);
  state().live_bytes -= found->second.bytes;
  state().blocks.erase(found);
  cudaFree(data);
}

}  // namespace

extern "C" {

void* plain_malloc(ssize_t bytes, int, cudaStream_t stream) {
  const auto wanted = static_cast<std::size_t>(bytes);
  if (wanted > state().most - state().live_bytes) {
    return nullptr;
  }
  // cudaMalloc() fails in a thread that captures in another mode.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  if (cudaThreadExchangeStreamCaptureMode(&mode) != cudaSuccess) {
    return nullptr;
  }
  void* data = nullptr;
  const bool made = cudaMalloc(&data, wanted) == cudaSuccess;
  cudaThreadExchangeStreamCaptureMode(&mode);
  if (!made) {
    return nullptr;
  }
  state().live_bytes += wanted;
  state().blocks[data] = {.bytes = wanted, .of_graph = state().filter && state().filter(stream)};
  return data;
}

void plain_free(void* data, ssize_t, int, cudaStream_t) {
  if (data == nullptr) {
    return;
  }
  if (state().blocks.at(data).of_graph && state().pool_is_there) {
    state().freed.push_back(data);
  } else {
    give_back(data);
  }
}

void plain_set_memory_fraction(double fraction, int) {
  std::size_t free = 0;
  std::size_t total = 0;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess) {
    state().most = static_cast<std::size_t>(fraction * static_cast<double>(total));
  }
}

void plain_begin_allocate_to_pool(int, PoolId, std::function<bool(cudaStream_t)> filter) {
  state().filter = std::move(filter);
  state().pool_is_there = true;
}

void plain_end_allocate_to_pool(int, PoolId) {
  state().filter = nullptr;
}

void plain_release_pool(int, PoolId) {
  state().pool_is_there = false;
  for (void* const data : std::exchange(state().freed, {})) {
    give_back(data);
  }
}

}  // extern "C"
