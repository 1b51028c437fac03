#include "src/plan/readers.h"

#include <algorithm>

namespace vdnn {

OpId last_forward_reader(const Tape& tape, ValueId value) {
  const auto readers = tape.readers(value);
  const auto backward = std::ranges::lower_bound(readers, tape.forward_ops());
  return backward == readers.begin() ? kNone : *(backward - 1);
}

OpId first_backward_reader(const Tape& tape, ValueId value) {
  const auto readers = tape.readers(value);
  const auto backward = std::ranges::lower_bound(readers, tape.forward_ops());
  return backward == readers.end() ? kNone : *backward;
}

}  // namespace vdnn
