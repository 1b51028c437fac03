#pragma once
// Memory for one operand of an op under test, between two inaccessible guard pages. The operand ends as near
// to the second guard page as an alignment of 256 bytes allows. The accessible bytes beside it hold a
// pattern.

#include <cstddef>
#include <cstdint>
#include <span>

#include "vdnn/device.h"

namespace vdnn::testing {

class GuardedBuffer {
 public:
  static constexpr std::size_t kAlignment = 256;

  // The buffer begins `shift` times kAlignment earlier, so that buffers of equal size differ in address.
  explicit GuardedBuffer(std::size_t bytes, std::size_t shift = 0);
  ~GuardedBuffer();
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(begin_), bytes_ / sizeof(T)};
  }
  void* data() const { return begin_; }
  AddressRange range() const;

  // NaN in every float, an impossible index in every integer.
  void poison();
  void set_read_only(bool read_only);
  // True if the pattern beside the operand is unchanged.
  bool slack_is_intact() const;

 private:
  std::byte* mapping_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::byte* pages_ = nullptr;  // between the guards
  std::size_t page_bytes_ = 0;
  std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace vdnn::testing
