#pragma once
// Opens pages in a browser, if one is installed.

#include <filesystem>
#include <string>

#include "src/base/environment.h"
#include "tests/process.h"
#include "tests/temporary_directory.h"

namespace vdnn::testing {

inline constexpr const char* kNoChromium = "Chromium is not installed (scripts/setup --long does it)";

// True if a test without a browser fails instead of being skipped.
inline bool chromium_is_required() {
  return environment("VDNN_REQUIRE_CHROMIUM") == "1";
}

// The browser's command; empty if there is none.
inline std::string chromium() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
    if (run_process(std::string("command -v ") + name).status == 0) {
      return name;
    }
  }
  return "";
}

// Base of tests that open pages; without a browser they are skipped.
class BrowserTest : public TemporaryDirectory {
 protected:
  void SetUp() override {
    TemporaryDirectory::SetUp();
    browser_ = chromium();
    if (browser_.empty()) {
      ASSERT_FALSE(chromium_is_required()) << kNoChromium;
      GTEST_SKIP() << kNoChromium;
    }
  }

  std::string browser_;
};

// Returns the final state of the page at `url`. The browser reaches no host but 127.0.0.1 and keeps its files
// and its log in `directory`. `options` are further options of the browser.
inline Outcome open_page(const std::string& browser, const std::filesystem::path& directory,
                         const std::string& url, const std::string& options = "") {
  // No sandbox, since it needs rights that containers do not have.
  return run_process("(timeout 120 " + browser +
                     " --headless --no-sandbox --disable-gpu --no-first-run --disable-extensions"
                     " --enable-logging=stderr --host-resolver-rules='MAP * ~NOTFOUND, EXCLUDE 127.0.0.1' " +
                     options + " --user-data-dir=" + (directory / "profile").string() + " --dump-dom " + url +
                     " 2>" + (directory / "log").string() + ")");
}

}  // namespace vdnn::testing
