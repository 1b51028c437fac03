#include "notice_log.h"

namespace vdnn::door {

std::atomic<NoticeLog::Function> NoticeLog::log_{nullptr};

}  // namespace vdnn::door
