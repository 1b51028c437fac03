#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace vdnn {

// The UUID as nvidia-smi writes it, without "GPU-" or "MIG-".
inline std::string uuid_text(const std::array<unsigned char, 16>& uuid) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i >= 4 && i <= 10 && i % 2 == 0) {
      text += '-';
    }
    text += kDigits[uuid[i] / 16];
    text += kDigits[uuid[i] % 16];
  }
  return text;
}

}  // namespace vdnn
