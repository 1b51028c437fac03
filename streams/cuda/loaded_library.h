#pragma once
// A vendor's library that is opened at run time, so that programs start where it is not installed. The
// library is never closed, since its objects outlive the first user.

#include <dlfcn.h>

#include <string>

#include "vdnn/error.h"

namespace vdnn::cuda {

class LoadedLibrary {
 public:
  // Throws DeviceError with the loader's reason.
  explicit LoadedLibrary(std::string name)
      : name_(std::move(name)), handle_(dlopen(name_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    require(handle_ != nullptr);
  }

  void* handle() const { return handle_; }

  template <class Function>
  Function find(const char* symbol) const {
    void* const found = dlsym(handle_, symbol);
    require(found != nullptr);
    return reinterpret_cast<Function>(found);
  }

 private:
  void require(bool done) const {
    if (!done) {
      const char* const reason = dlerror();
      throw DeviceError(name_ + " cannot be loaded: " + (reason == nullptr ? "no reason" : reason));
    }
  }

  std::string name_;
  void* handle_;
};

}  // namespace vdnn::cuda
