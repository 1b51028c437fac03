#pragma once
// Reserves capacity in a vector, so that an element can be added later without memory.

#include <algorithm>
#include <cstddef>
#include <vector>

namespace vdnn {

// Reserves capacity for `size` elements. The capacity at least doubles, so that adding elements one by one
// takes amortized constant time.
template <class Element>
void make_room(std::vector<Element>& elements, std::size_t size) {
  if (elements.capacity() < size) {
    elements.reserve(std::max(size, 2 * elements.capacity()));
  }
}

}  // namespace vdnn
