#pragma once
// Stores one copy of each name, so that the name outlives the work that it names.

#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace vdnn {

class Names {
 public:
  // The result stays valid as long as this object.
  const std::string* intern(std::string_view name) {
    const auto it = names_.find(name);
    return &*(it != names_.end() ? it : names_.emplace(name).first);
  }

 private:
  std::set<std::string, std::less<>> names_;
};

}  // namespace vdnn
