#pragma once
// SHA-256 (FIPS 180-4), for the fingerprints of weights and files.

#include <cstddef>
#include <memory>
#include <span>
#include <string>

struct evp_md_ctx_st;

namespace vdnn {

// Incremental; belongs to one thread. Throws Error if OpenSSL fails.
class Sha256 {
 public:
  Sha256();

  void update(std::span<const std::byte> bytes);
  // The digest of all bytes given so far, as 64 lower-case hexadecimal digits; update() may follow.
  std::string hex_digest() const;

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  using Context = std::unique_ptr<evp_md_ctx_st, Free>;
  static Context make_context();

  Context context_;
};

}  // namespace vdnn
