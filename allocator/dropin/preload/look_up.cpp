// The hook for programs with CUDA's runtime linked in (nvcc's default). Such a runtime opens the driver's
// library, gets cuGetProcAddress() from dlsym(), and looks up all other functions with cuGetProcAddress().
// So this library defines a dlsym() of its own, in front of the loader's (look_up.S), which returns our
// functions (driver_hooks.h) in place of the driver's.
//
// By default, libraries with a runtime of their own allocate from the driver, since they may share their
// memory in ways that a pool's memory does not support. With Settings::libraries, the pools serve them, too.
//
// A thread that opens a library holds the loader's lock, and the library's constructors may call this
// dlsym(). So this library holds no lock when it calls the loader.

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <optional>
#include <string_view>

#include "allocator/dropin/preload/driver_hooks.h"
#include "allocator/dropin/preload/driver_runtime.h"
#include "allocator/dropin/preload/preload.h"

using Dlsym = void* (*)(void* library, const char* name);

extern "C" {
// The loader's dlsym(); look_up.S jumps there.
__attribute__((visibility("hidden"))) Dlsym vdnn_preload_next_dlsym = nullptr;
__attribute__((visibility("hidden"))) void* vdnn_preload_look_up(void* library, const char* name,
                                                                 const void* caller) noexcept;
}

namespace {

using vdnn::preload::Asker;
using vdnn::preload::Pools;

// The name of the file whose code contains `caller`; empty for the program itself.
std::string_view object_of(const void* caller) {
  Dl_info info{};
  link_map* map = nullptr;
  const bool known =
      dladdr1(caller, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0 && map != nullptr;
  return known ? map->l_name : "unknown";
}

// Empty for the shared runtime: the hooks in front of it serve its callers already.
std::optional<Asker> asker(const void* caller) {
  const std::string_view object = object_of(caller);
  if (object.find("libcudart.so") != std::string_view::npos) {
    return std::nullopt;
  }
  return object.empty() || Pools::instance().settings.libraries ? Asker::kServed : Asker::kOther;
}

// The driver must not be unloaded when the program's runtime ends, since this library calls it later.
void keep(const void* function) {
  Dl_info info{};
  if (dladdr(function, &info) != 0) {
    dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  }
}

void say_once(const char* why) {
  static std::atomic_flag said;
  if (!said.test_and_set()) {
    std::fprintf(stderr, "vdnn preload: %s; all memory is CUDA's\n", why);
  }
}

// Sets the driver if `library` is the driver's; another library may happen to have functions of the same
// name. Returns whether the driver is set.
bool use_driver(void* library) {
  if (vdnn::preload::driver() != nullptr) {
    return true;
  }
  void* const found = vdnn_preload_next_dlsym(library, "cuGetProcAddress_v2");
  if (found == nullptr) {
    if (vdnn_preload_next_dlsym(library, "cuGetProcAddress") != nullptr) {
      say_once("the CUDA driver is older than 12.0");
    }
    return false;
  }
  try {
    const vdnn::preload::DriverTable table =
        vdnn::preload::load_driver(reinterpret_cast<PFN_cuGetProcAddress_v12000>(found));
    keep(found);
    vdnn::preload::set_driver(table);
    return true;
  } catch (const std::exception& error) {
    say_once(error.what());
    return false;
  }
}

// Whether the driver's library contains `function`: another library may have functions of the same name.
bool is_of_driver(const void* function) {
  const auto object = [](const void* address) -> const void* {
    Dl_info info{};
    return dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
  };
  return object(function) == object(reinterpret_cast<const void*>(vdnn::preload::driver()->cuGetProcAddress));
}

void* find_instead(void* library, const char* name, const void* caller) noexcept {
  try {
    if (!vdnn::preload::is_hooked(name)) {
      return nullptr;
    }
    const std::optional<Asker> who = asker(caller);
    void* const next = who ? vdnn_preload_next_dlsym(library, name) : nullptr;
    if (next == nullptr || !use_driver(library) || !is_of_driver(next)) {
      return nullptr;
    }
    void* const mine = vdnn::preload::find_driver_hook(*who, name, next);
    Pools::instance().looked_up += mine != nullptr && *who == Asker::kServed ? 1 : 0;
    return mine;
  } catch (const std::exception&) {
    return nullptr;
  }
}

// The oldest symbol version of dlsym(), which every glibc has.
#if defined(__x86_64__)
constexpr const char* kVersion = "GLIBC_2.2.5";
#else
constexpr const char* kVersion = "GLIBC_2.17";
#endif

}  // namespace

// Each call of dlsym() in the process calls this function, even calls by sanitizers that are not initialised
// yet. So this function must not call anything that sanitizers intercept.
__attribute__((no_sanitize("address", "thread", "undefined"))) void* vdnn_preload_look_up(
    void* library, const char* name, const void* caller) noexcept {
  if (__atomic_load_n(&vdnn_preload_next_dlsym, __ATOMIC_ACQUIRE) == nullptr) {
    void* const next = dlvsym(RTLD_NEXT, "dlsym", kVersion);
    __atomic_store_n(&vdnn_preload_next_dlsym, reinterpret_cast<Dlsym>(next), __ATOMIC_RELEASE);
  }
  const bool is_of_driver =
      name != nullptr && name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
  const bool is_relative = library == RTLD_DEFAULT || library == RTLD_NEXT;
  return is_of_driver && !is_relative ? find_instead(library, name, caller) : nullptr;
}
