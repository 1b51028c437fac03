#include "allocator/dropin/torch/construct_error.h"
#include "allocator/dropin/torch/torch_error.h"

void vdnn::construct_error_with_cxx11_string(void* constructor, void* error, const char* text) {
  construct_error(constructor, error, text);
}
