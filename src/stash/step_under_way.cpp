#include "src/stash/step_under_way.h"

#include <algorithm>

namespace vdnn::stash {

namespace {

// One more push_back() takes no memory.
template <class T>
void make_room(std::vector<T>& vector) {
  constexpr std::size_t kFirst = 16;
  if (vector.size() == vector.capacity()) {
    vector.reserve(std::max(kFirst, 2 * vector.size()));
  }
}

}  // namespace

void StepUnderWay::make_room_for_save() {
  make_room(record_.tensors);
  make_room(record_.events);
  make_room(handles_);
}

void StepUnderWay::make_room_for_read() {
  make_room(record_.events);
}

}  // namespace vdnn::stash
