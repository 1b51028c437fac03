#pragma once
// Joins words into one text.

#include <string>
#include <vector>

namespace vdnn {

inline std::string joined(const std::vector<std::string>& words, const std::string& between) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : between) + word;
  }
  return text;
}

}  // namespace vdnn
