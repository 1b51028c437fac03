#pragma once
// Room in a vector ahead of need, so that an element can be added later without memory.

#include <algorithm>
#include <cstddef>
#include <vector>

namespace vdnn {

// Makes room for `size` elements. Capacity at least doubles, so that elements added one by one cost amortized
// constant time.
template <class Element>
void make_room(std::vector<Element>& elements, std::size_t size) {
  if (elements.capacity() < size) {
    elements.reserve(std::max(size, 2 * elements.capacity()));
  }
}

}  // namespace vdnn
