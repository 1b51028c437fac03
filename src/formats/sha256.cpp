#include "vdnn/sha256.h"

#include <openssl/evp.h>

#include <array>
#include <string_view>

#include "vdnn/error.h"

namespace vdnn {

namespace {

void check(int status) {
  if (status != 1) {
    throw Error("OpenSSL cannot compute SHA-256");
  }
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* context) const {
  EVP_MD_CTX_free(context);
}

Sha256::Context Sha256::make_context() {
  Context context(EVP_MD_CTX_new());
  check(context != nullptr ? 1 : 0);
  return context;
}

Sha256::Sha256() : context_(make_context()) {
  check(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr));
}

void Sha256::update(std::span<const std::byte> bytes) {
  check(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()));
}

std::string Sha256::hex_digest() const {
  // Finishes a copy, since a finished context accepts no more bytes.
  const Context copy = make_context();
  check(EVP_MD_CTX_copy_ex(copy.get(), context_.get()));
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int bytes = 0;
  check(EVP_DigestFinal_ex(copy.get(), digest.data(), &bytes));
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < bytes; ++i) {
    text += kDigits[digest[i] >> 4];
    text += kDigits[digest[i] & 15];
  }
  return text;
}

}  // namespace vdnn
