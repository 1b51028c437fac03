#pragma once
// gzip files (RFC 1952) for targets whose readers need them.

#include "fuzz/target.h"

namespace vdnn::fuzz {

Bytes gzip(Input contents);

}  // namespace vdnn::fuzz
