#pragma once
// Helpers of the C interfaces: exceptions become status codes, and null pointers become exceptions.

#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "vdnn/allocator.h"
#include "vdnn/error.h"

namespace vdnn {

// Makes `text` the calling thread's last error; returns `status`.
vdnn_status fail(vdnn_status status, std::string_view text) noexcept;

// Calls `body` and returns VDNN_OK, or the status code of the exception that `body` throws.
template <class Body>
vdnn_status guarded(const Body& body) noexcept {
  try {
    body();
    return VDNN_OK;
  } catch (const OutOfMemory& error) {
    return fail(VDNN_OUT_OF_MEMORY, error.what());
  } catch (const InvalidArgument& error) {
    return fail(VDNN_INVALID_ARGUMENT, error.what());
  } catch (const DeviceError& error) {
    return fail(error.lost() ? VDNN_DEVICE_LOST : VDNN_DEVICE_ERROR, error.what());
  } catch (const std::bad_alloc&) {
    return fail(VDNN_NO_HOST_MEMORY, "no host memory");
  } catch (const std::exception& error) {
    return fail(VDNN_INTERNAL_ERROR, error.what());
  } catch (...) {
    return fail(VDNN_INTERNAL_ERROR, "something was thrown that is no exception of the standard library");
  }
}

template <class T>
T& given(T* pointer, const char* name) {
  if (pointer == nullptr) {
    throw InvalidArgument(std::string(name) + " is null");
  }
  return *pointer;
}

inline void check_version(std::uint32_t version, std::uint32_t newest) {
  if (version == 0 || version > newest) {
    throw InvalidArgument("version " + std::to_string(version) + " is not known: use 1 to " +
                          std::to_string(newest));
  }
}

// Writes the text that `make()` returns, cut to `capacity`, and its full size to `needed`. Calls `make()`
// after it has checked the arguments, and writes nothing if `make()` throws.
template <class Make>
void give_text(char* text, std::uint64_t capacity, std::uint64_t* needed, const Make& make) {
  std::uint64_t& length = given(needed, "needed");
  if (capacity > 0) {
    given(text, "text");
  }
  const std::string made = make();
  length = made.size() + 1;
  if (capacity > 0) {
    const std::uint64_t copied = made.size() < capacity ? made.size() : capacity - 1;
    std::memcpy(text, made.data(), copied);
    text[copied] = '\0';
  }
}

}  // namespace vdnn
