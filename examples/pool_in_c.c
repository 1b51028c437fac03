// The stream pool in C. Two streams alternately allocate blocks, fill them and copy them out. Each block is
// freed at once, while the device still works on it, and no thread waits. The pool orders the next user of
// the memory after that work.

#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

#include "vdnn/allocator.h"

enum { kStreams = 2, kRounds = 20, kBytes = 100000 };

struct run {
  vdnn_allocator* pool;
  cudaStream_t streams[kStreams];
  unsigned char* host;  // page-locked, kBytes per round
};

static int cuda_did(cudaError_t error, const char* call) {
  if (error != cudaSuccess) {
    fprintf(stderr, "pool_in_c: %s: %s\n", call, cudaGetErrorString(error));
  }
  return error == cudaSuccess;
}

static int pool_did(vdnn_status status, const char* call) {
  if (status != VDNN_OK) {
    fprintf(stderr, "pool_in_c: %s: %s: %s\n", call, vdnn_status_name(status), vdnn_last_error());
  }
  return status == VDNN_OK;
}

#define CUDA_DID(call) cuda_did(call, #call)
#define POOL_DID(call) pool_did(call, #call)

static int make(struct run* run) {
  vdnn_allocator_options options;
  if (!POOL_DID(vdnn_allocator_options_init(&options, VDNN_ALLOCATOR_VERSION))) {
    return 0;
  }
  options.budget_bytes = 16 << 20;
  options.ends_are_told = 1;
  for (int i = 0; i < kStreams; ++i) {
    if (!CUDA_DID(cudaStreamCreate(&run->streams[i]))) {
      return 0;
    }
  }
  return CUDA_DID(cudaMallocHost((void**)&run->host, kRounds * kBytes)) &&
         POOL_DID(vdnn_allocator_create(&options, &run->pool));
}

static int round_of(struct run* run, int round) {
  cudaStream_t stream = run->streams[round % kStreams];
  void* block = NULL;
  if (!POOL_DID(vdnn_allocator_allocate(run->pool, kBytes, stream, VDNN_TRANSIENT, &block))) {
    return 0;
  }
  const int done =
      CUDA_DID(cudaMemsetAsync(block, round, kBytes, stream)) &&
      CUDA_DID(cudaMemcpyAsync(run->host + round * kBytes, block, kBytes, cudaMemcpyDeviceToHost, stream));
  return POOL_DID(vdnn_allocator_free(run->pool, block)) && done;
}

static int print_result(struct run* run) {
  vdnn_allocator_statistics statistics = {.version = VDNN_ALLOCATOR_VERSION};
  uint64_t sum = 0;
  if (!CUDA_DID(cudaDeviceSynchronize()) ||
      !POOL_DID(vdnn_allocator_get_statistics(run->pool, &statistics))) {
    return 0;
  }
  for (int i = 0; i < kRounds * kBytes; ++i) {
    sum += run->host[i];
  }
  printf("sum             %" PRIu64 "\n", sum);
  printf("blocks          %" PRIu64 "\n", statistics.all.blocks.added);
  printf("growths         %" PRIu64 "\n", statistics.growths);
  printf("not given back  %" PRIu64 "\n", statistics.all.blocks.current);
  return 1;
}

// Frees everything, even after a failure.
static int end(struct run* run) {
  int done = 1;
  for (int i = 0; i < kStreams; ++i) {
    if (run->streams[i] != NULL) {
      done =
          (run->pool == NULL || POOL_DID(vdnn_allocator_forget_stream(run->pool, run->streams[i]))) && done;
      done = CUDA_DID(cudaStreamDestroy(run->streams[i])) && done;
    }
  }
  done = POOL_DID(vdnn_allocator_destroy(run->pool)) && done;
  return CUDA_DID(cudaFreeHost(run->host)) && done;
}

int main(void) {
  struct run run = {NULL, {NULL}, NULL};
  int done = make(&run);
  for (int round = 0; done && round < kRounds; ++round) {
    done = round_of(&run, round);
  }
  done = done && print_result(&run);
  done = end(&run) && done;
  return done ? 0 : 1;
}
