#pragma once
// PyTorch's exceptions, with the layout of c10/util/Exception.h.

#include <cstdint>
#include <exception>
#include <string>

namespace c10 {

struct SourceLocation {
  const char* function;
  const char* file;
  std::uint32_t line;
};

class __attribute__((visibility("default"))) Error : public std::exception {
 public:
  Error(SourceLocation source, std::string text);
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
  std::string where_;
};

class __attribute__((visibility("default"))) OutOfMemoryError : public Error {
 public:
  using Error::Error;
};

}  // namespace c10
