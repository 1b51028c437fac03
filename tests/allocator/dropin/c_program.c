#include "c_program.h"

#include <string.h>

#define TEXT_OF(line) #line
#define PLACE(line) TEXT_OF(line)
#define EXPECT(condition) \
  if (!(condition)) return "line " PLACE(__LINE__) ": " #condition

static const char* allocates_and_frees(vdnn_allocator* allocator, void* stream, void* other) {
  void* small = NULL;
  void* lasting = NULL;
  void* ready = NULL;
  uint64_t bytes = 0;
  int owns = 0;
  EXPECT(vdnn_allocator_allocate(allocator, 1000, stream, VDNN_TRANSIENT, &small) == VDNN_OK);
  EXPECT(vdnn_allocator_allocate(allocator, 3000, stream, VDNN_PERSISTENT, &lasting) == VDNN_OK);
  EXPECT(vdnn_allocator_allocate_ready(allocator, 0, VDNN_TRANSIENT, &ready) == VDNN_OK);
  EXPECT(small != NULL && lasting != NULL && ready != NULL && small != ready);
  EXPECT(vdnn_allocator_block_bytes(allocator, lasting, &bytes) == VDNN_OK && bytes == 3000);
  EXPECT(vdnn_allocator_owns(allocator, small, &owns) == VDNN_OK && owns == 1);
  EXPECT(vdnn_allocator_owns(allocator, &owns, &owns) == VDNN_OK && owns == 0);
  EXPECT(vdnn_allocator_used_on(allocator, small, other) == VDNN_OK);
  EXPECT(vdnn_allocator_free(allocator, small) == VDNN_OK);
  EXPECT(vdnn_allocator_free(allocator, small) == VDNN_INVALID_ARGUMENT);
  EXPECT(strlen(vdnn_last_error()) > 0);
  EXPECT(vdnn_allocator_free_on(allocator, lasting, other) == VDNN_OK);
  EXPECT(vdnn_allocator_free_idle(allocator, ready) == VDNN_OK);
  EXPECT(vdnn_allocator_forget_stream(allocator, other) == VDNN_OK);
  return NULL;
}

static const char* reports(vdnn_allocator* allocator, void* stream) {
  char text[64];
  uint64_t needed = 0;
  vdnn_allocator_statistics statistics;
  memset(&statistics, 0, sizeof statistics);
  statistics.version = VDNN_ALLOCATOR_VERSION;
  EXPECT(vdnn_allocator_get_statistics(allocator, &statistics) == VDNN_OK);
  EXPECT(statistics.all.blocks.added == 3 && statistics.all.blocks.removed == 3);
  EXPECT(statistics.persistent_blocks.requested.peak == 3000);
  EXPECT(vdnn_allocator_get_stream_statistics(allocator, stream, &statistics) == VDNN_OK);
  EXPECT(statistics.all.blocks.added == 2);
  EXPECT(vdnn_allocator_reset_peaks(allocator) == VDNN_OK);
  EXPECT(vdnn_allocator_picture(allocator, text, sizeof text, &needed) == VDNN_OK);
  EXPECT(needed > sizeof text && strlen(text) == sizeof text - 1);
  EXPECT(vdnn_allocator_snapshot(allocator, NULL, 0, &needed) == VDNN_OK && needed > 1);
  EXPECT(vdnn_allocator_torch_snapshot(allocator, 0, NULL, 0, &needed) == VDNN_OK && needed > 1);
  return NULL;
}

const char* run_c_program(vdnn_allocator* allocator, void* stream, void* other) {
  uint64_t released = 0;
  const char* wrong = allocates_and_frees(allocator, stream, other);
  if (wrong == NULL) wrong = reports(allocator, stream);
  if (wrong != NULL) return wrong;
  EXPECT(vdnn_allocator_trim(allocator, 0, &released) == VDNN_OK && released > 0);
  EXPECT(strcmp(vdnn_status_name(VDNN_OUT_OF_MEMORY), "out of memory") == 0);
  return NULL;
}
