/* A program in C that finds the installed library only by pkg-config. It needs no GPU, since it only prints the
   library's error for an unknown version. */

#include <stdio.h>
#include <vdnn/allocator.h>

int main(void) {
  vdnn_allocator_options options;
  vdnn_allocator* allocator = NULL;
  if (vdnn_allocator_options_init(&options, VDNN_ALLOCATOR_VERSION) != VDNN_OK) {
    return 1;
  }
  options.version = 0;
  const vdnn_status status = vdnn_allocator_create(&options, &allocator);
  printf("%s: %s\n", vdnn_status_name(status), vdnn_last_error());
  return allocator == NULL ? 0 : 1;
}
