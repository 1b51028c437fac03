#pragma once
// The browser in which pages are opened, where one is installed.

#include <filesystem>
#include <string>

#include "src/base/environment.h"
#include "tests/process.h"
#include "tests/temporary_directory.h"

namespace vdnn::testing {

inline constexpr const char* kNoChromium = "Chromium is not installed (scripts/setup --long does it)";

// Whether a test that finds none fails, and is not skipped.
inline bool chromium_is_required() {
  return environment("VDNN_REQUIRE_CHROMIUM") == "1";
}

// Its command; empty where there is none.
inline std::string chromium() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
    if (run_process(std::string("command -v ") + name).status == 0) {
      return name;
    }
  }
  return "";
}

// Tests that open pages; skipped where there is no browser.
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

// The page at `url` as it is in the end, in a browser that finds no host but 127.0.0.1 and keeps its files
// and its log in `directory`. `options`: more of the browser's.
inline Outcome open_page(const std::string& browser, const std::filesystem::path& directory,
                         const std::string& url, const std::string& options = "") {
  // No sandbox: it needs rights that containers do not have.
  return run_process("(timeout 120 " + browser +
                     " --headless --no-sandbox --disable-gpu --no-first-run --disable-extensions"
                     " --enable-logging=stderr --host-resolver-rules='MAP * ~NOTFOUND, EXCLUDE 127.0.0.1' " +
                     options + " --user-data-dir=" + (directory / "profile").string() + " --dump-dom " + url +
                     " 2>" + (directory / "log").string() + ")");
}

}  // namespace vdnn::testing
