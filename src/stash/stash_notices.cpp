#include "src/stash/stash_notices.h"

#include "vdnn/size.h"

namespace vdnn::stash {

StashNotices::Notice& StashNotices::first_pending() {
  return host_exhausted_.is_pending() ? host_exhausted_
         : host_refused_.is_pending() ? host_refused_
                                      : budget_exceeded_;
}

std::string StashNotices::take(std::uint64_t host_bytes, std::uint64_t budget_bytes, std::size_t capacity) {
  if (!is_pending()) {
    return "";
  }
  Notice& notice = first_pending();
  std::string text;
  if (&notice == &budget_exceeded_) {
    text = "the budget of " + format_size(budget_bytes) + " cannot be kept: a step needs " +
           format_size(notice.bytes()) + " even if every tensor leaves that can";
  } else {
    const std::string host_budget = "the host budget of " + format_size(host_bytes);
    text = (&notice == &host_exhausted_ ? host_budget + " is exhausted"
                                        : "the system refused to page-lock more than " +
                                              format_size(notice.locked_bytes()) + " of " + host_budget) +
           ": tensors without page-locked memory stay on the device, the first of " +
           format_size(notice.bytes());
  }
  if (text.size() < capacity) {
    notice.tell();
  }
  return text;
}

}  // namespace vdnn::stash
