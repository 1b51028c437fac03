#include <stdlib.h>
#include <string.h>

#include "stash_program_c.h"

#define TEXT_OF(line) #line
#define PLACE(line) TEXT_OF(line)
#define EXPECT(condition) \
  if (!(condition)) return "line " PLACE(__LINE__) ": " #condition

enum { kTensors = 4, kBytes = 1000 };

typedef struct saved_tensor {
  vdnn_stash_handle handle;
  unsigned char source[kBytes];
  unsigned char target[kBytes];
} saved_tensor;

static const char* release(vdnn_stash* stash, saved_tensor* saved) {
  vdnn_stash_handle released[kTensors];
  uint32_t count = 0;
  EXPECT(vdnn_stash_released(stash, NULL, released, kTensors, &count) == VDNN_OK);
  for (uint32_t i = 0; i < count; ++i) {
    for (int j = 0; j < kTensors; ++j) {
      if (saved[j].handle == released[i]) memset(saved[j].source, 0xff, kBytes);
    }
  }
  return NULL;
}

static const char* save(vdnn_stash* stash, saved_tensor* saved, int index) {
  uint32_t answer = 0;
  memset(saved[index].source, index + 1, kBytes);
  EXPECT(vdnn_stash_put(stash, saved[index].source, kBytes, NULL, (uint64_t)index, 0, 1, 0,
                        &saved[index].handle, &answer) == VDNN_OK);
  EXPECT(saved[index].handle != 0);
  if (answer & VDNN_STASH_LEAVING) {
    vdnn_stash_handle leaving[kTensors];
    uint32_t count = 0;
    EXPECT(vdnn_stash_leaving(stash, leaving, kTensors, &count) == VDNN_OK && count > 0);
    EXPECT(vdnn_stash_stay(stash, leaving[0]) == VDNN_OK);
    EXPECT(vdnn_stash_leave(stash, leaving[0], NULL, &answer) == VDNN_OK);
    EXPECT((answer & VDNN_STASH_VERDICT) == VDNN_STASH_LEAVES);
  }
  return answer & VDNN_STASH_RELEASED ? release(stash, saved) : NULL;
}

static const char* fetch(vdnn_stash* stash, saved_tensor* saved, vdnn_stash_handle reading) {
  vdnn_stash_handle due[kTensors];
  uint64_t bytes[kTensors];
  uint32_t count = 0;
  EXPECT(vdnn_stash_fetches(stash, reading, due, bytes, kTensors, &count) == VDNN_OK);
  for (uint32_t i = 0; i < count; ++i) {
    EXPECT(bytes[i] == kBytes);
    for (int j = 0; j < kTensors; ++j) {
      if (saved[j].handle == due[i]) {
        EXPECT(vdnn_stash_fetch(stash, due[i], saved[j].target, NULL) == VDNN_OK);
      }
    }
  }
  return NULL;
}

static const char* read(vdnn_stash* stash, saved_tensor* saved, int index) {
  uint32_t answer = 0;
  const saved_tensor* tensor = &saved[index];
  EXPECT(vdnn_stash_read(stash, tensor->handle, NULL, 0, 0, &answer) == VDNN_OK);
  if (answer & VDNN_STASH_FETCHES) {
    const char* failure = fetch(stash, saved, tensor->handle);
    if (failure != NULL) return failure;
  }
  if (answer & VDNN_STASH_MISSING) EXPECT(vdnn_stash_ready(stash, tensor->handle, NULL) == VDNN_OK);
  EXPECT((answer & VDNN_STASH_IN_PLACE ? tensor->source : tensor->target)[kBytes - 1] == index + 1);
  EXPECT(vdnn_stash_drop(stash, tensor->handle) == VDNN_OK);
  return NULL;
}

const char* run_stash_program(vdnn_stash* stash) {
  saved_tensor* const saved = calloc(kTensors, sizeof *saved);
  const char* failure = saved == NULL ? "no memory" : NULL;
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < kTensors && failure == NULL; ++i) failure = save(stash, saved, i);
    for (int i = kTensors; i-- > 0 && failure == NULL;) failure = read(stash, saved, i);
  }
  free(saved);
  return failure;
}
