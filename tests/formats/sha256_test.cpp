#include "vdnn/sha256.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace vdnn {
namespace {

std::string digest(std::string_view text) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hash.hex_digest();
}

// The vectors of FIPS 180-2, appendix B, and the empty message.
TEST(Sha256, AgreesWithTheStandardsVectors) {
  EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, IsTheSameInPieces) {
  const std::string text = "what is given in pieces is hashed as a whole, however the pieces are cut";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    Sha256 hash;
    hash.update(std::as_bytes(std::span(text.data(), cut)));
    hash.update(std::as_bytes(std::span(text.data() + cut, text.size() - cut)));
    EXPECT_EQ(hash.hex_digest(), digest(text)) << "cut at " << cut;
  }
}

TEST(Sha256, ADigestMayBeTakenInTheMiddle) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(std::string_view("a"))));
  EXPECT_EQ(hash.hex_digest(), digest("a"));
  EXPECT_EQ(hash.hex_digest(), digest("a"));
  hash.update(std::as_bytes(std::span(std::string_view("bc"))));
  EXPECT_EQ(hash.hex_digest(), digest("abc"));
}

}  // namespace
}  // namespace vdnn
