// Uses a pluggable allocator as PyTorch does, without PyTorch. It opens a library by its path, and finds two
// functions and the optional hooks by name, with the types of torch/csrc/cuda/CUDAPluggableAllocator.h.
// Tensors are allocated and freed on streams, read on other streams, and belong to pools of graphs. Meanwhile
// the caches are emptied.
//
//   torch_tensors LIBRARY PREFIX          the functions are PREFIX_malloc and so on

#include <dlfcn.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>

#include "program.h"

namespace {

constexpr int kGpu = 0;

// c10::cuda::MempoolId_t.
using PoolId = std::pair<unsigned long long, unsigned long long>;

void require(bool holds, const char* what) {
  if (!holds) {
    throw program::Failure(what);
  }
}

// An optional function; calling it does nothing if the library lacks it.
template <class... Arguments>
class Hook {
 public:
  Hook(void* library, const std::string& name)
      : function_(reinterpret_cast<void (*)(Arguments...)>(dlsym(library, name.c_str()))) {}
  void operator()(Arguments... arguments) const {
    if (function_ != nullptr) {
      function_(std::move(arguments)...);
    }
  }

 private:
  void (*function_)(Arguments...);
};

// Never closes the library, like PyTorch.
class Allocator {
 public:
  Allocator(const char* path, const std::string& prefix)
      : library_(dlopen(path, RTLD_NOW | RTLD_LOCAL)),
        malloc_(reinterpret_cast<void* (*)(ssize_t, int, cudaStream_t)>(find(prefix + "_malloc"))),
        free_(reinterpret_cast<void (*)(void*, ssize_t, int, cudaStream_t)>(find(prefix + "_free"))),
        init(library_, prefix + "_init"),
        empty_cache(library_, prefix + "_reset"),
        set_memory_fraction(library_, prefix + "_set_memory_fraction"),
        record_stream(library_, prefix + "_record_stream"),
        begin_pool(library_, prefix + "_begin_allocate_to_pool"),
        end_pool(library_, prefix + "_end_allocate_to_pool"),
        release_pool(library_, prefix + "_release_pool") {}

  // Returns null if there is no memory.
  void* allocate(std::size_t bytes, cudaStream_t stream) const {
    return malloc_(static_cast<ssize_t>(bytes), kGpu, stream);
  }
  void free(void* data, std::size_t bytes, cudaStream_t stream) const {
    free_(data, static_cast<ssize_t>(bytes), kGpu, stream);
  }

 private:
  void* find(const std::string& name) const {
    require(library_ != nullptr, "the library cannot be opened");
    void* const found = dlsym(library_, name.c_str());
    require(found != nullptr, "the library lacks one of the two functions");
    return found;
  }

  void* library_;
  void* (*malloc_)(ssize_t, int, cudaStream_t);
  void (*free_)(void*, ssize_t, int, cudaStream_t);

 public:
  Hook<int> init;
  Hook<> empty_cache;
  Hook<double, int> set_memory_fraction;
  Hook<void*, cudaStream_t> record_stream;
  Hook<int, PoolId, std::function<bool(cudaStream_t)>> begin_pool;
  Hook<int, PoolId> end_pool;
  Hook<int, PoolId> release_pool;
};

class Tensor {
 public:
  Tensor(const Allocator& allocator, std::size_t bytes_, cudaStream_t stream)
      : data(allocator.allocate(bytes_, stream)), bytes(bytes_), allocator_(allocator), stream_(stream) {
    require(data != nullptr, "no memory for a tensor");
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  // Frees on the stream of the allocation; record_stream() has reported the other streams that used the
  // tensor.
  ~Tensor() { allocator_.free(data, bytes, stream_); }

  void* data;
  std::size_t bytes;

 private:
  const Allocator& allocator_;
  cudaStream_t stream_;
};

struct Memory {
  std::size_t free = 0;
  std::size_t total = 0;
};

Memory memory() {
  Memory result;
  CHECK(cudaMemGetInfo(&result.free, &result.total));
  return result;
}

void wait_for(cudaStream_t earlier, cudaStream_t later) {
  const program::Event event;
  CHECK(cudaEventRecord(event.handle, earlier));
  CHECK(cudaStreamWaitEvent(later, event.handle, 0));
}

void add_content(program::Checksum& sum, const void* data, std::size_t bytes, cudaStream_t stream) {
  std::vector<unsigned char> back(bytes);
  CHECK(cudaMemcpyAsync(back.data(), data, bytes, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  sum.add(back.data(), bytes);
}

// Requires that `half` bytes of memory can be allocated, and no more.
void fill(const Allocator& allocator, std::size_t half) {
  constexpr std::size_t kBytes = 3 << 20;
  const program::Stream stream;
  std::vector<void*> live;
  for (void* data = nullptr; (data = allocator.allocate(kBytes, stream.handle)) != nullptr;) {
    live.push_back(data);
  }
  for (void* const data : live) {
    allocator.free(data, kBytes, stream.handle);
  }
  require(live.size() * kBytes <= half, "more memory was allocated than is permitted");
  require((live.size() + 2) * kBytes > half, "permitted memory cannot be allocated");
}

// Tensors of one stream that another stream reads; they are destroyed before the read is done.
void hand_on(const Allocator& allocator, program::Checksum& sum) {
  constexpr std::size_t kStreams = 3;
  constexpr std::size_t kMost = 200'000;
  std::mt19937_64 random(5);
  const std::array<program::Stream, kStreams> streams;
  const program::PinnedBuffer result(kStreams * kMost, 0);
  for (int round = 0; round < 8; ++round) {
    std::fill_n(result.bytes_of(), result.bytes, std::uint8_t{0});
    for (int step = 0; step < 10; ++step) {
      const std::size_t reader = random() % kStreams;
      const cudaStream_t from = streams[random() % kStreams].handle;
      const cudaStream_t to = streams[reader].handle;
      const Tensor made(allocator, 1'000 + random() % (kMost - 1'000), from);
      const std::vector<unsigned char> content = program::pattern(made.bytes / 2, random());
      CHECK(cudaMemsetAsync(made.data, step, made.bytes, from));
      CHECK(cudaMemcpyAsync(made.data, content.data(), content.size(), cudaMemcpyHostToDevice, from));
      wait_for(from, to);
      allocator.record_stream(made.data, to);
      const Tensor copied(allocator, made.bytes, to);
      CHECK(cudaMemcpyAsync(copied.data, made.data, made.bytes, cudaMemcpyDeviceToDevice, to));
      CHECK(cudaMemcpyAsync(result.bytes_of() + reader * kMost, copied.data, made.bytes,
                            cudaMemcpyDeviceToHost, to));
    }
    for (const program::Stream& stream : streams) {
      CHECK(cudaStreamSynchronize(stream.handle));
    }
    sum.add(result.data, result.bytes);
    if (round % 3 == 2) {
      allocator.empty_cache();
    }
  }
}

// While `give` runs, allocations on `stream` come from a pool that lasts as long as this object.
class PooledGraph {
 public:
  template <class Give>
  PooledGraph(const Allocator& allocator, PoolId id, cudaStream_t stream, const Give& give)
      : pool_(allocator, id) {
    allocator.begin_pool(kGpu, id, [stream](cudaStream_t other) { return other == stream; });
    try {
      graph_.emplace(stream, give);
    } catch (const program::Failure&) {
      allocator.end_pool(kGpu, id);
      throw;
    }
    allocator.end_pool(kGpu, id);
  }

  void launch(cudaStream_t stream) const { CHECK(cudaGraphLaunch(graph_->exec, stream)); }

 private:
  struct Pool {
    Pool(const Allocator& of, PoolId of_id) : allocator(of), id(of_id) {}
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;
    ~Pool() { allocator.release_pool(kGpu, id); }

    const Allocator& allocator;
    PoolId id;
  };

  Pool pool_;
  std::optional<program::Graph> graph_;
};

// The graph keeps its memory between launches, including blocks that were freed during the capture.
void replay(const Allocator& allocator, PoolId id, program::Checksum& sum) {
  constexpr std::size_t kBytes = 100'000;
  const program::Stream stream;
  const program::Stream beside;
  const Tensor in(allocator, kBytes, stream.handle);
  std::unique_ptr<Tensor> out;
  const PooledGraph graph(allocator, id, stream.handle, [&] {
    const Tensor between(allocator, kBytes, stream.handle);
    CHECK(cudaMemcpyAsync(between.data, in.data, kBytes, cudaMemcpyDeviceToDevice, stream.handle));
    CHECK(cudaMemsetAsync(between.data, 9, kBytes / 3, stream.handle));
    out = std::make_unique<Tensor>(allocator, 2 * kBytes, stream.handle);
    CHECK(cudaMemsetAsync(out->data, 1, out->bytes, stream.handle));
    CHECK(cudaMemcpyAsync(out->data, between.data, kBytes, cudaMemcpyDeviceToDevice, stream.handle));
  });
  for (int launch = 0; launch < 5; ++launch) {
    const std::vector<unsigned char> content = program::pattern(kBytes, static_cast<std::uint64_t>(launch));
    CHECK(cudaMemcpyAsync(in.data, content.data(), kBytes, cudaMemcpyHostToDevice, stream.handle));
    const Tensor other(allocator, kBytes, beside.handle);
    const Tensor same(allocator, kBytes, stream.handle);
    CHECK(cudaMemsetAsync(other.data, launch, kBytes, beside.handle));
    CHECK(cudaMemsetAsync(same.data, launch, kBytes, stream.handle));
    graph.launch(stream.handle);
    add_content(sum, out->data, out->bytes, stream.handle);
    add_content(sum, same.data, kBytes, stream.handle);
    add_content(sum, other.data, kBytes, beside.handle);
    allocator.empty_cache();
  }
}

// CUDA may refuse to free some memory at first. Memory that is still allocated after repeated requests has
// leaked.
void empty_all(const Allocator& allocator) {
  constexpr int kAttempts = 20;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    allocator.empty_cache();
  }
}

std::uint64_t body(const char* path, const char* prefix) {
  program::Checksum sum;
  CHECK(cudaSetDevice(kGpu));
  const Memory before = memory();
  const Allocator allocator(path, prefix);
  allocator.init(1);
  allocator.set_memory_fraction(0.5, kGpu);
  try {
    fill(allocator, before.total / 2);
    hand_on(allocator, sum);
    for (unsigned long long pool = 1; pool < 4; ++pool) {
      replay(allocator, {0, pool}, sum);
    }
  } catch (const program::Failure&) {
    empty_all(allocator);
    throw;
  }
  empty_all(allocator);
  require(memory().free == before.free, "not all memory was freed");
  return sum.value();
}

}  // namespace

int main(int count, char** arguments) {
  return program::run([&] {
    require(count == 3, "usage: torch_tensors LIBRARY PREFIX");
    return body(arguments[1], arguments[2]);
  });
}
