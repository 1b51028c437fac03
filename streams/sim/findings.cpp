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
  std::size_t same = 0;
  while (same < all_.size() && (sentences_[same] != what || all_[same].range.end() != range.begin)) {
    ++same;
  }
  if (same == kMost) {
    return;
  }
  if (same < all_.size()) {
    all_[same].range.bytes += range.bytes;
  } else {
    all_.push_back({.kind = kind, .first = first, .second = second, .range = range, .text = {}});
    sentences_.push_back(what);
  }
  all_[same].text = what + ", in bytes " + format_range(all_[same].range) + ".";
}

}  // namespace vdnn
