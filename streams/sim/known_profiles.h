#pragma once
// The profiles of `share/devices/`, embedded in the library so that they are available wherever it is
// installed.

#include <span>
#include <string_view>

namespace vdnn {

struct KnownProfile {
  std::string_view name;
  std::string_view text;  // for parse_sim_profile()
};

std::span<const KnownProfile> known_profiles();

}  // namespace vdnn
