#pragma once
// What somebody may have meant by a name that is not there.

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vdnn {

// Insertions, deletions and replacements that it takes to get from one to the other (Levenshtein 1966).
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t column = 0; column <= b.size(); ++column) {
    row[column] = column;
  }
  for (std::size_t line = 0; line < a.size(); ++line) {
    std::size_t diagonal = std::exchange(row[0], line + 1);
    for (std::size_t column = 0; column < b.size(); ++column) {
      const std::size_t replaced = diagonal + (a[line] == b[column] ? 0 : 1);
      diagonal = row[column + 1];
      row[column + 1] = std::min({replaced, row[column] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// Of `names` the nearest three, as "a, b, c".
inline std::string near_names(std::string_view name, const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 3;
  std::vector<std::pair<std::size_t, std::string>> ranked;
  ranked.reserve(names.size());
  for (const std::string& each : names) {
    ranked.emplace_back(edit_distance(name, each), each);
  }
  std::ranges::stable_sort(ranked, {}, &std::pair<std::size_t, std::string>::first);
  std::string text;
  for (std::size_t each = 0; each < std::min(kMost, ranked.size()); ++each) {
    text += (each > 0 ? ", " : "") + ranked[each].second;
  }
  return text;
}

}  // namespace vdnn
