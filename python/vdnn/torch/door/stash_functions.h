#pragma once
// The functions of libvdnn_stash.so that the hooks call. They are looked up at run time, so that the binary
// is linked only with PyTorch.

#include "vdnn/stash.h"

namespace vdnn::door {

struct StashFunctions {
  decltype(&::vdnn_last_error) last_error;
  decltype(&::vdnn_stash_create) create;
  decltype(&::vdnn_stash_streams) streams;
  decltype(&::vdnn_stash_put) put;
  decltype(&::vdnn_stash_leaving) leaving;
  decltype(&::vdnn_stash_leave) leave;
  decltype(&::vdnn_stash_stay) stay;
  decltype(&::vdnn_stash_hold) hold;
  decltype(&::vdnn_stash_note_held) note_held;
  decltype(&::vdnn_stash_note_peak) note_peak;
  decltype(&::vdnn_stash_released) released;
  decltype(&::vdnn_stash_read) read;
  decltype(&::vdnn_stash_fetches) fetches;
  decltype(&::vdnn_stash_fetch) fetch;
  decltype(&::vdnn_stash_ready) ready;
  decltype(&::vdnn_stash_drop) drop;
  decltype(&::vdnn_stash_take_notice) take_notice;

  // Throws std::runtime_error if the library or one of the functions is missing.
  static StashFunctions of_library(const char* path);
};

}  // namespace vdnn::door
