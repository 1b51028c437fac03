#pragma once
// The tensors of a stash that have live handles, by handle and by contents. A storage at one version is in
// the table once.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>

#include "src/stash/stashed_tensor.h"

namespace vdnn::stash {

// Not synchronised. A tensor keeps its address until it is removed.
class TensorTable {
 public:
  using Node = std::unordered_map<StashHandle, StashedTensor>::node_type;
  struct Added {
    StashHandle handle = 0;
    StashedTensor& tensor;
  };

  // Adds a tensor under a new handle. Its contents must not be in the table.
  Added add(const SavedTensor& saved);
  // Undoes the latest add(), which returned `latest`.
  void take_back(StashHandle latest) noexcept;
  // Removes the handle. The tensor lives until the returned node is destroyed.
  Node remove(StashHandle handle);

  // Returns null if no such handle is alive.
  StashedTensor* find(StashHandle handle) {
    const auto found = tensors_.find(handle);
    return found == tensors_.end() ? nullptr : &found->second;
  }
  std::optional<StashHandle> handle_of(const StashIdentity& contents) const {
    const auto found = by_contents_.find(contents);
    return found == by_contents_.end() ? std::nullopt : std::optional(found->second);
  }
  std::size_t size() const { return tensors_.size(); }

  template <class Visit>
  void for_each(const Visit& visit) {
    for (auto& [handle, tensor] : tensors_) {
      visit(tensor);
    }
  }

 private:
  struct HashOfIdentity {
    std::size_t operator()(const StashIdentity& identity) const {
      constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio
      return std::hash<std::uint64_t>()((identity.storage * kOdd) ^ identity.version);
    }
  };

  std::unordered_map<StashHandle, StashedTensor> tensors_;
  std::unordered_map<StashIdentity, StashHandle, HashOfIdentity> by_contents_;
  StashHandle last_handle_ = 0;
};

}  // namespace vdnn::stash
