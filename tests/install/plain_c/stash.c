/* A program in C that finds the installed library only by pkg-config. Without a GPU, it offloads a saved tensor,
   overwrites the original, and fetches the tensor back. */

#include <stdio.h>
#include <string.h>
#include <vdnn/stash.h>

enum { kBytes = 4096 };

/* Returns the line that fails; 0 if none does. */
static int move_tensor(vdnn_stash* stash) {
  unsigned char source[kBytes];
  unsigned char target[kBytes];
  vdnn_stash_handle saved = 0;
  vdnn_stash_handle named = 0;
  uint64_t bytes = 0;
  uint32_t answer = 0;
  uint32_t count = 0;
  memset(source, 7, kBytes);
  if (vdnn_stash_put(stash, source, kBytes, NULL, 1, 0, 0, 0, &saved, &answer) != VDNN_OK) return __LINE__;
  if ((answer & VDNN_STASH_VERDICT) != VDNN_STASH_LEAVES || !(answer & VDNN_STASH_RELEASED)) return __LINE__;
  if (vdnn_stash_released(stash, NULL, &named, 1, &count) != VDNN_OK || named != saved) return __LINE__;
  memset(source, 0, kBytes);
  if (vdnn_stash_read(stash, saved, NULL, 0, 0, &answer) != VDNN_OK) return __LINE__;
  if ((answer & VDNN_STASH_MISSING) == 0) return __LINE__;
  if (vdnn_stash_fetches(stash, saved, &named, &bytes, 1, &count) != VDNN_OK || bytes != kBytes) return __LINE__;
  if (vdnn_stash_fetch(stash, saved, target, NULL) != VDNN_OK) return __LINE__;
  if (vdnn_stash_ready(stash, saved, NULL) != VDNN_OK) return __LINE__;
  if (target[0] != 7 || target[kBytes - 1] != 7) return __LINE__;
  return vdnn_stash_drop(stash, saved) == VDNN_OK ? 0 : __LINE__;
}

int main(void) {
  vdnn_stash_options options;
  vdnn_stash* stash = NULL;
  if (vdnn_stash_options_init(&options, VDNN_STASH_VERSION) != VDNN_OK) return 1;
  options.flight_bytes = 1;
  if (vdnn_stash_create(&options, &stash) != VDNN_OK) return 1;
  const int line = move_tensor(stash);
  if (line != 0) {
    printf("line %d: %s\n", line, vdnn_last_error());
  } else {
    printf("left and came back\n");
  }
  vdnn_stash_destroy(stash);
  return line != 0;
}
