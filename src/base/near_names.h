#pragma once
// Suggestions for an unknown name.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vdnn {

// The least number of insertions, deletions, replacements and swaps of neighbours that turn one text into the
// other, if no part is edited twice (optimal string alignment; Damerau 1964).
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t line = 1; line <= a.size(); ++line) {
    std::swap(before, last);
    std::swap(last, row);
    row[0] = line;
    for (std::size_t column = 1; column <= b.size(); ++column) {
      const std::size_t replaced = last[column - 1] + (a[line - 1] == b[column - 1] ? 0 : 1);
      row[column] = std::min({replaced, last[column] + 1, row[column - 1] + 1});
      if (line > 1 && column > 1 && a[line - 1] == b[column - 2] && a[line - 2] == b[column - 1]) {
        row[column] = std::min(row[column], before[column - 2] + 1);
      }
    }
  }
  return row.back();
}

// The nearest three of `names`, as "a, b, c".
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

// The nearest of `names`, as a suffix of a message: " (did you mean 'train'?)". Empty if none is near. A name
// is near if it needs at most one edit per three characters of `name`, or a single edit if `name` has two
// characters.
inline std::string did_you_mean(std::string_view name, const std::vector<std::string>& names) {
  const auto distance = [&](const std::string& each) { return edit_distance(name, each); };
  const auto nearest = std::ranges::min_element(names, {}, distance);
  const std::size_t most = std::max(name.size() / 3, std::size_t{1});
  if (name.size() < 2 || nearest == names.end() || distance(*nearest) > most) {
    return "";
  }
  return " (did you mean '" + *nearest + "'?)";
}

}  // namespace vdnn
