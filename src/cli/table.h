#pragma once
// A table for people.

#include <algorithm>
#include <cstddef>
#include <iomanip>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace vdnn {

// Columns of texts, aligned to the right except the first, and the last if it contains words.
class Table {
 public:
  using Row = std::vector<std::string>;
  enum class Last { kWords, kNumbers };

  explicit Table(Last last = Last::kWords) : last_(last) {}

  void add(Row row) {
    widths_.resize(std::max(widths_.size(), row.size()));
    for (std::size_t each = 0; each < row.size(); ++each) {
      widths_[each] = std::max(widths_[each], row[each].size());
    }
    rows_.push_back(std::move(row));
  }
  void print(std::ostream& out) const {
    for (const Row& row : rows_) {
      for (std::size_t each = 0; each + 1 < row.size(); ++each) {
        out << (each == 0 ? std::left : std::right) << std::setw(static_cast<int>(widths_[each])) << row[each]
            << "  ";
      }
      out << (last_ == Last::kNumbers ? std::right : std::left)
          << std::setw(last_ == Last::kNumbers ? static_cast<int>(widths_.back()) : 0) << row.back() << "\n";
    }
  }

 private:
  Last last_;
  std::vector<std::size_t> widths_;
  std::vector<Row> rows_;
};

}  // namespace vdnn
