#pragma once
// An open file of the operating system, closed with its owner.

#include <unistd.h>

#include <utility>

namespace vdnn {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  // Takes over the result of open(); negative means no file.
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~FileDescriptor() {
    if (is_open()) {
      ::close(descriptor_);
    }
  }

  int get() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  // For callers that close the file themselves, to see the result of closing.
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_ = -1;
};

}  // namespace vdnn
