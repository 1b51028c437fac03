// Captures that begin or end by functions looked up in the runtime's library itself, so that no library in
// front of it sees them. Meanwhile and afterwards, memory is freed.

#include <dlfcn.h>

#include "program.h"

namespace {

template <class Function>
Function find(const char* name) {
  const std::string library = "libcudart.so." + std::to_string(CUDART_VERSION / 1000);
  void* const found = dlsym(dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD), name);
  if (found == nullptr) {
    throw program::Failure(std::string("dlsym: ") + name);
  }
  return reinterpret_cast<Function>(found);
}

cudaError_t begin_unseen(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return find<decltype(&cudaStreamBeginCapture)>("cudaStreamBeginCapture")(stream, mode);
}

cudaError_t end_unseen(cudaStream_t stream, cudaGraph_t* graph) {
  return find<decltype(&cudaStreamEndCapture)>("cudaStreamEndCapture")(stream, graph);
}

cudaError_t destroy_unseen(cudaStream_t stream) {
  return find<decltype(&cudaStreamDestroy)>("cudaStreamDestroy")(stream);
}

// Captures a memset, and calls `meanwhile()` before `end`.
template <class Begin, class End, class Meanwhile>
void capture(cudaStream_t stream, const Begin& begin, const End& end, const Meanwhile& meanwhile) {
  constexpr std::size_t kBytes = 10'000;
  const program::Buffer used(kBytes);
  CHECK(begin(stream, cudaStreamCaptureModeThreadLocal));
  CHECK(cudaMemsetAsync(used.data, 1, kBytes, stream));
  meanwhile();
  cudaGraph_t graph = nullptr;
  CHECK(end(stream, &graph));
  CHECK(cudaGraphDestroy(graph));
}

void nothing() {}

// Allocates and frees on a thread that captures nothing.
void allocate_and_free() {
  program::sum_over_threads(1, [](std::size_t) {
    const program::Buffer passing(10'000);
    return std::uint64_t{0};
  });
}

// Allocates a block on each of many streams that are destroyed unseen, while another stream is captured. The
// last stream frees all blocks.
void leave_blocks() {
  constexpr int kStreams = 1200;
  std::vector<void*> blocks(kStreams);
  for (void*& block : blocks) {
    cudaStream_t brief = nullptr;
    CHECK(cudaStreamCreateWithFlags(&brief, cudaStreamNonBlocking));
    CHECK(cudaMallocAsync(&block, 1000, brief));
    CHECK(destroy_unseen(brief));
  }
  const program::Stream last;
  for (void* const block : blocks) {
    CHECK(cudaFreeAsync(block, last.handle));
  }
}

std::uint64_t body() {
  const program::Stream stream;
  const program::Stream blocking(cudaStreamDefault);
  for (int round = 0; round < 2; ++round) {
    // A capture that began unseen and has ended must not hide a later capture.
    capture(stream.handle, begin_unseen, cudaStreamEndCapture, nothing);
    capture(stream.handle, cudaStreamBeginCapture, cudaStreamEndCapture, allocate_and_free);
    // The legacy stream reveals captures of blocking streams.
    capture(blocking.handle, begin_unseen, cudaStreamEndCapture, allocate_and_free);
    // Captures that have ended unseen must not keep memory from being reused.
    for (const cudaStream_t each : {stream.handle, cudaStreamPerThread}) {
      capture(each, cudaStreamBeginCapture, end_unseen, nothing);
      program::come_and_go();
    }
    cudaStream_t brief = nullptr;
    CHECK(cudaStreamCreateWithFlags(&brief, cudaStreamNonBlocking));
    capture(brief, cudaStreamBeginCapture, end_unseen, nothing);
    CHECK(destroy_unseen(brief));
    program::come_and_go();
  }
  capture(stream.handle, cudaStreamBeginCapture, cudaStreamEndCapture, leave_blocks);
  return 0;
}

}  // namespace

int main() {
  return program::run(body);
}
