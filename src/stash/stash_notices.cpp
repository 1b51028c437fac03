#include "src/stash/stash_notices.h"

#include "vdnn/size.h"

namespace vdnn::stash {

std::string StashNotices::take(std::uint64_t host_bytes, std::uint64_t budget_bytes, std::size_t capacity) {
  if (!is_pending()) {
    return "";
  }
  const bool is_host = host_exhausted_.is_pending();
  Notice& notice = is_host ? host_exhausted_ : budget_exceeded_;
  std::string text = is_host
                         ? "the host budget of " + format_size(host_bytes) +
                               " is exhausted: tensors without page-locked memory stay on the device, the "
                               "first of " +
                               format_size(notice.bytes())
                         : "the budget of " + format_size(budget_bytes) + " cannot be kept: a step needs " +
                               format_size(notice.bytes()) + " even if every tensor leaves that can";
  if (text.size() < capacity) {
    notice.tell();
  }
  return text;
}

}  // namespace vdnn::stash
