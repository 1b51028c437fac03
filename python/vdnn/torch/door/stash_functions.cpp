#include "stash_functions.h"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace vdnn::door {
namespace {

template <class Function>
void look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) {
    throw std::runtime_error(std::string("libvdnn_stash.so has no ") + name);
  }
}

}  // namespace

StashFunctions StashFunctions::of_library(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw std::runtime_error(dlerror());
  }
  StashFunctions functions{};
  look_up(library, "vdnn_last_error", functions.last_error);
  look_up(library, "vdnn_stash_create", functions.create);
  look_up(library, "vdnn_stash_streams", functions.streams);
  look_up(library, "vdnn_stash_put", functions.put);
  look_up(library, "vdnn_stash_leaving", functions.leaving);
  look_up(library, "vdnn_stash_leave", functions.leave);
  look_up(library, "vdnn_stash_stay", functions.stay);
  look_up(library, "vdnn_stash_hold", functions.hold);
  look_up(library, "vdnn_stash_note_held", functions.note_held);
  look_up(library, "vdnn_stash_note_peak", functions.note_peak);
  look_up(library, "vdnn_stash_released", functions.released);
  look_up(library, "vdnn_stash_read", functions.read);
  look_up(library, "vdnn_stash_fetches", functions.fetches);
  look_up(library, "vdnn_stash_fetch", functions.fetch);
  look_up(library, "vdnn_stash_ready", functions.ready);
  look_up(library, "vdnn_stash_drop", functions.drop);
  look_up(library, "vdnn_stash_take_notice", functions.take_notice);
  return functions;
}

}  // namespace vdnn::door
