#pragma once
// Names that outlive the work they were given with, one copy each.

#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace vdnn {

class Names {
 public:
  // Stays valid for as long as this object.
  const std::string* intern(std::string_view name) {
    const auto it = names_.find(name);
    return &*(it != names_.end() ? it : names_.emplace(name).first);
  }

 private:
  std::set<std::string, std::less<>> names_;
};

}  // namespace vdnn
