#include "streams/sim/findings.h"

#include <array>
#include <cstdio>

namespace vdnn {

std::string format_range(AddressRange range) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "[0x%llx, 0x%llx)", static_cast<unsigned long long>(range.begin),
                static_cast<unsigned long long>(range.end()));
  return text.data();
}

void Findings::add(SimFinding::Kind kind, const std::string& first, const std::string& second,
                   AddressRange range, const std::string& what) {
  const bool continues = !all_.empty() && all_.back().kind == kind && last_what_ == what &&
                         all_.back().range.end() == range.begin;
  if (!continues && all_.size() == kMost) {
    return;
  }
  if (continues) {
    all_.back().range.bytes += range.bytes;
  } else {
    all_.push_back({.kind = kind, .first = first, .second = second, .range = range, .text = {}});
    last_what_ = what;
  }
  all_.back().text = what + ", in bytes " + format_range(all_.back().range) + ".";
}

}  // namespace vdnn
