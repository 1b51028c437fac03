#include "streams/cpu/arena.h"

#include <sys/mman.h>

#include <limits>
#include <optional>
#include <utility>

#include "vdnn/error.h"
#include "vdnn/size.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace vdnn {

namespace {

constexpr int kReadWrite = PROT_READ | PROT_WRITE;
constexpr AddressRange kEverything{.begin = 0, .bytes = std::numeric_limits<std::uint64_t>::max()};

void poison([[maybe_unused]] AddressRange range) {
#ifdef __SANITIZE_ADDRESS__
  __asan_poison_memory_region(pointer_to<void>(range.begin), range.bytes);
#endif
}

void unpoison([[maybe_unused]] AddressRange range) {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(pointer_to<void>(range.begin), range.bytes);
#endif
}

// Changes the access to pages. The range has been checked, so the call fails only if there is no memory for
// the page tables.
bool set_access(AddressRange pages, int page_access) {
  return mprotect(pointer_to<void>(pages.begin), pages.bytes, page_access) == 0;
}

void require_access(AddressRange pages, int page_access) {
  if (!set_access(pages, page_access)) {
    throw DeviceError("cpu: the system refused to change the protection of " + format_size(pages.bytes));
  }
}

AddressRange pages_around(AddressRange range) {
  const std::uint64_t begin = range.begin / kPageBytes * kPageBytes;
  return {.begin = begin, .bytes = round_up(range.end(), kPageBytes) - begin};
}

}  // namespace

Arena::Arena(std::string owner, std::uint64_t granule_bytes)
    : owner_(std::move(owner)), space_(owner_, granule_bytes) {}

Arena::~Arena() {
  // AddressSanitizer would report accesses by the next owner of addresses that stay poisoned.
  space_.committed().visit(kEverything, [](AddressRange piece, const Protection* state) {
    if (state != nullptr) {
      unpoison(piece);
    }
  });
}

AddressRange Arena::reserve(std::uint64_t bytes) {
  if (bytes == 0) {
    space_.refuse("a reservation of 0 bytes", {});
  }
  const std::uint64_t granule = space_.granule_bytes();
  std::optional<Mapping> mapping = Mapping::make(round_up(bytes, granule), granule, Mapping::Kind::kReserved);
  if (!mapping) {
    throw OutOfMemory(owner_ + ": address space", {.asked = bytes});
  }
  const AddressRange range = mapping->range();
  const std::lock_guard lock(mutex_);
  mappings_.emplace(range.begin, std::move(*mapping));
  try {
    space_.add(range);
  } catch (...) {
    mappings_.erase(range.begin);
    throw;
  }
  return range;
}

void Arena::unreserve(AddressRange reservation) {
  const std::lock_guard lock(mutex_);
  space_.check_unused(reservation);
  space_.remove(reservation);
  mappings_.erase(reservation.begin);
}

bool Arena::committed(AddressRange range) const {
  const std::lock_guard lock(mutex_);
  return space_.is_committed(range);
}

void Arena::commit(AddressRange range) {
  const std::lock_guard lock(mutex_);
  space_.check_committable(range);
  space_.committed().assign(range, Protection::kAccessible);
  // Work that is running under a restriction was submitted before this commit, so it cannot have declared
  // the range.
  if (!set_access(range, restricted_ ? PROT_NONE : kReadWrite)) {
    // Erases exactly the assigned interval, which splits no interval and so needs no memory.
    space_.committed().erase(range);
    throw OutOfMemory(owner_ + ": memory of the machine", {.asked = range.bytes});
  }
  if (restricted_) {
    poison(range);
  }
}

void Arena::decommit(AddressRange range) {
  const std::lock_guard lock(mutex_);
  space_.check_decommittable(range);
  unpoison(range);
  require_access(range, PROT_NONE);
  // madvise() cannot fail for whole pages of a private mapping; if it did, the memory would be given back
  // later.
  madvise(pointer_to<void>(range.begin), range.bytes, MADV_DONTNEED);
  space_.committed().erase(range);
}

void Arena::protect(AddressRange range, Protection protection) {
  const std::lock_guard lock(mutex_);
  if (range.begin % kPageBytes != 0 || range.bytes % kPageBytes != 0) {
    space_.refuse("protection of a range that is not whole pages", range);
  }
  if (!space_.is_committed(range)) {
    space_.refuse("protection of a range that is not committed", range);
  }
  const bool open = protection == Protection::kAccessible && !restricted_;
  require_access(range, open ? kReadWrite : PROT_NONE);
  // A range that became inaccessible during a restriction kept its poison when the restriction ended.
  restricted_ ? poison(range) : unpoison(range);
  space_.committed().assign(range, protection);
}

template <class Visitor>
void Arena::visit_accessible(AddressRange range, Visitor&& visitor) const {
  space_.committed().visit(range, [&](AddressRange piece, const Protection* state) {
    if (state != nullptr && *state == Protection::kAccessible) {
      visitor(piece);
    }
  });
}

void Arena::admit(const Access& access, int page_access) {
  if (access.range.bytes == 0) {
    return;
  }
  visit_accessible(pages_around(access.range),
                   [&](AddressRange pages) { require_access(pages, page_access); });
  visit_accessible(access.range, unpoison);
}

void Arena::restrict_to(std::span<const Access> reads, std::span<const Access> writes) {
  const std::lock_guard lock(mutex_);
  restricted_ = true;
  visit_accessible(kEverything, [](AddressRange pages) {
    require_access(pages, PROT_NONE);
    poison(pages);
  });
  for (const Access& read : reads) {
    admit(read, PROT_READ);
  }
  // Admits writes after reads, so that a page with both is writable.
  for (const Access& write : writes) {
    admit(write, kReadWrite);
  }
}

void Arena::lift_restriction() {
  const std::lock_guard lock(mutex_);
  restricted_ = false;
  visit_accessible(kEverything, [](AddressRange pages) {
    unpoison(pages);
    require_access(pages, kReadWrite);
  });
}

}  // namespace vdnn
