#include "vdnn/error.h"

#include "vdnn/size.h"

namespace vdnn {

namespace {

std::string describe(const std::string& where, const MemoryShortage& s) {
  return where + ": asked " + format_size(s.asked) + ", in use " + format_size(s.in_use) + ", cached " +
         format_size(s.cached) + ", largest free block " + format_size(s.largest_free_block) + ", budget " +
         format_size(s.budget) + "; " + format_size(s.would_have_fitted) + " would have fitted";
}

}  // namespace

OutOfMemory::OutOfMemory(const std::string& where, const MemoryShortage& shortage)
    : Error(describe(where, shortage)), shortage_(shortage) {}

OutOfMemory::OutOfMemory(const std::string& text, std::uint64_t asked, std::uint64_t budget)
    : Error(text), shortage_{.asked = asked, .budget = budget, .would_have_fitted = budget} {}

}  // namespace vdnn
