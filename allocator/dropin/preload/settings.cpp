#include "allocator/dropin/preload/settings.h"

#include "src/base/environment.h"
#include "vdnn/error.h"
#include "vdnn/size.h"

namespace vdnn::preload {

namespace {

std::string value_of(const char* name) {
  return environment(name).value_or("");
}

std::uint64_t size_of(const char* name, std::uint64_t otherwise) {
  const std::string text = value_of(name);
  return text.empty() ? otherwise : parse_size(text);
}

// Whether the variable has the value `yes`. Throws unless it has that value, has the value `no`, is empty or
// is not set.
bool choice(const char* name, const std::string& yes, const std::string& no) {
  const std::string text = value_of(name);
  if (text != yes && text != no && !text.empty()) {
    throw InvalidArgument(std::string(name) + " is '" + text + "': " + yes + " or " + no);
  }
  return text == yes;
}

}  // namespace

Settings read_settings() {
  Settings settings;
  settings.memory_bytes = size_of("VDNN_PRELOAD_MEMORY", settings.memory_bytes);
  settings.ordered_free = choice("VDNN_PRELOAD_FREE", "ordered", "synchronous");
  settings.ipc = choice("VDNN_PRELOAD_IPC", "1", "0");
  settings.libraries = choice("VDNN_PRELOAD_LIBRARIES", "1", "0");
  settings.peers = !choice("VDNN_PRELOAD_PEERS", "0", "1");
  settings.host_cache_bytes = size_of("VDNN_PRELOAD_HOST_CACHE", settings.host_cache_bytes);
  settings.summary = value_of("VDNN_PRELOAD_SUMMARY");
  return settings;
}

}  // namespace vdnn::preload
