#pragma once
// Arrays one after another in an op's workspace. The same code computes their total size, from a workspace
// that begins at address 0, and their addresses in the actual workspace.

#include <cstdint>

#include "vdnn/address_range.h"
#include "vdnn/size.h"

namespace vdnn::cuda {

inline constexpr std::uint64_t kWorkspaceAlignment = 256;

class Workspace {
 public:
  explicit Workspace(std::uint64_t begin = 0) : begin_(begin), end_(begin) {}

  template <class T>
  T* take(std::uint64_t count) {
    const std::uint64_t begin = end_;
    end_ = checked_add(begin, round_up(checked_multiply(count, sizeof(T)), kWorkspaceAlignment));
    return pointer_to<T>(begin);
  }
  std::uint64_t bytes() const { return end_ - begin_; }

 private:
  std::uint64_t begin_;
  std::uint64_t end_;
};

// The size of a layout, a class whose constructor takes a Workspace and then `arguments`.
template <class Layout, class... Arguments>
std::uint64_t workspace_bytes(const Arguments&... arguments) {
  Workspace workspace;
  const Layout layout(workspace, arguments...);
  return workspace.bytes();
}

}  // namespace vdnn::cuda
