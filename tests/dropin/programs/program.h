#pragma once
// Shared by the programs: plain use of CUDA's runtime, errors as exceptions, a checksum of the results. The
// programs know nothing of vdnn. Each prints "checksum X" and exits with 0, or "failed: CALL: ERROR" and
// exits with 3.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace program {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) {
    throw Failure(std::string(call) + ": " + cudaGetErrorString(error));
  }
}

#define CHECK(call) program::check(call, #call)

class Buffer {
 public:
  explicit Buffer(std::size_t bytes_) : bytes(bytes_) { CHECK(cudaMalloc(&data, bytes)); }
  Buffer(Buffer&& other) noexcept : data(std::exchange(other.data, nullptr)), bytes(other.bytes) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data, other.data);
    std::swap(bytes, other.bytes);
    return *this;
  }
  ~Buffer() {
    if (data != nullptr) {
      cudaFree(data);
    }
  }

  void* data = nullptr;
  std::size_t bytes;
};

// Stream-ordered memory; the destructor frees it in the order of `stream`.
class Block {
 public:
  Block(std::size_t bytes_, cudaStream_t stream_) : bytes(bytes_), stream(stream_) {
    CHECK(cudaMallocAsync(&data, bytes, stream));
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { cudaFreeAsync(data, stream); }

  void* data = nullptr;
  std::size_t bytes;
  cudaStream_t stream;  // may be replaced by one that comes after all uses
};

class PinnedBuffer {
 public:
  PinnedBuffer(std::size_t bytes_, unsigned flags) : bytes(bytes_) {
    CHECK(flags == 0 ? cudaMallocHost(&data, bytes) : cudaHostAlloc(&data, bytes, flags));
  }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  ~PinnedBuffer() {
    if (data != nullptr) {
      cudaFreeHost(data);
    }
  }

  unsigned char* bytes_of() const { return static_cast<unsigned char*>(data); }

  void* data = nullptr;
  std::size_t bytes;
};

class Stream {
 public:
  explicit Stream(unsigned flags = cudaStreamNonBlocking) {
    CHECK(cudaStreamCreateWithFlags(&handle, flags));
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(handle); }

  cudaStream_t handle = nullptr;
};

class Event {
 public:
  Event() { CHECK(cudaEventCreateWithFlags(&handle, cudaEventDisableTiming)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { cudaEventDestroy(handle); }

  cudaEvent_t handle = nullptr;
};

// A graph of the work that `give` submits to the stream.
class Graph {
 public:
  template <class Give>
  Graph(cudaStream_t stream, const Give& give) {
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    cudaGraph_t captured = nullptr;
    try {
      give();
    } catch (const Failure&) {
      cudaStreamEndCapture(stream, &captured);
      if (captured != nullptr) {
        cudaGraphDestroy(captured);
      }
      throw;
    }
    CHECK(cudaStreamEndCapture(stream, &captured));
    const cudaError_t made = cudaGraphInstantiate(&exec, captured, 0);
    cudaGraphDestroy(captured);
    check(made, "cudaGraphInstantiate");
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { cudaGraphExecDestroy(exec); }

  cudaGraphExec_t exec = nullptr;
};

// FNV-1a.
class Checksum {
 public:
  void add(const void* data, std::size_t bytes) {
    const auto* const begin = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < bytes; ++i) {
      value_ = (value_ ^ begin[i]) * 0x100000001b3U;
    }
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

// Allocates and frees more memory in total than the GPU has.
inline void come_and_go() {
  constexpr std::size_t kBytes = 12 << 20;
  for (int i = 0; i < 20; ++i) {
    const Buffer passing(kBytes);
    CHECK(cudaMemset(passing.data, i, kBytes));
  }
}

inline std::vector<unsigned char> pattern(std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<unsigned char> result(bytes);
  for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(result.data() + at, &word, std::min(sizeof word, bytes - at));
  }
  return result;
}

// Runs `work(index)` on a separate thread for each index, and combines the results.
template <class Work>
std::uint64_t sum_over_threads(std::size_t count, const Work& work) {
  std::vector<std::uint64_t> sums(count);
  std::vector<std::exception_ptr> errors(count);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      try {
        sums[i] = work(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::exception_ptr& error : errors) {
    if (error) {
      std::rethrow_exception(error);
    }
  }
  Checksum sum;
  sum.add(sums.data(), count * sizeof sums[0]);
  return sum.value();
}

template <class Body>
int run(const Body& body) {
  try {
    std::printf("checksum %016llx\n", static_cast<unsigned long long>(body()));
    return 0;
  } catch (const Failure& failure) {
    std::printf("failed: %s\n", failure.what());
    return 3;
  }
}

}  // namespace program
