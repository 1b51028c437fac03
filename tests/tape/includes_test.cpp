// Planning depends only on the tape. Sources in src/tape and src/plan, and all headers that they reach, are
// checked. They must not include a driver, an allocator, an op library, the executor, a network or training.
// The build cannot enforce that, because all public headers are in one folder. Moreover, headers must not
// include some headers of other projects that take long to compile.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <queue>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace vdnn {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = VDNN_SOURCE_DIR;

const std::set<std::string> kPublicHeaders{
    "vdnn/checker.h",      "vdnn/cost.h",          "vdnn/address_range.h", "vdnn/error.h",
    "vdnn/learned_step.h", "vdnn/forecast.h",      "vdnn/optimal_plan.h",  "vdnn/plan_costs.h",
    "vdnn/op_catalog.h",   "vdnn/op_spec.h",       "vdnn/plan.h",          "vdnn/plan_search.h",
    "vdnn/schedule.h",     "vdnn/schedule_file.h", "vdnn/size.h",          "vdnn/tape.h",
    "vdnn/tensor.h"};

// The included names, with their brackets or quotes.
std::vector<std::string> includes_of(const std::string& text) {
  static const std::regex pattern(R"re(^[ \t]*#[ \t]*include[ \t]*(<[^>]*>|"[^"]*"))re",
                                  std::regex::ECMAScript | std::regex::multiline);
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match) {
    found.push_back((*match)[1]);
  }
  return found;
}

bool is_own(const std::string& include) {
  return include.front() == '"';
}
std::string name_of(const std::string& include) {
  return include.substr(1, include.size() - 2);
}

bool may_include(const fs::path& file, const std::string& include) {
  const std::string name = name_of(include);
  if (is_own(include)) {
    return kPublicHeaders.contains(name) || name.starts_with("src/base/") || name.starts_with("src/tape/") ||
           name.starts_with("src/plan/");
  }
  // Only headers of the standard library have neither an extension nor a folder.
  static const std::regex standard("[a-z_]+");
  return std::regex_match(name, standard) ||
         ((file.filename() == "schedule_file.cpp" || file.filename() == "learned_step_file.cpp") &&
          name.starts_with("nlohmann/"));
}

std::string read(const fs::path& file) {
  std::ifstream in(file);
  EXPECT_TRUE(in) << file;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

fs::path locate(const std::string& name) {
  return name.starts_with("vdnn/") ? kRoot / "include" / name : kRoot / name;
}

std::vector<fs::path> sources() {
  std::vector<fs::path> files;
  for (const char* room : {"src/tape", "src/plan"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / room)) {
      if (entry.path().extension() == ".cpp" || entry.path().extension() == ".h") {
        files.push_back(entry.path());
      }
    }
  }
  return files;
}

TEST(Includes, PlanningSeesTheTapeOnly) {
  std::queue<fs::path> open;
  std::set<fs::path> seen;
  for (const fs::path& file : sources()) {
    open.push(file);
    seen.insert(file);
  }
  for (; !open.empty(); open.pop()) {
    for (const std::string& include : includes_of(read(open.front()))) {
      EXPECT_TRUE(may_include(open.front(), include)) << open.front() << " includes " << include;
      if (is_own(include) && seen.insert(locate(name_of(include))).second) {
        open.push(locate(name_of(include)));
      }
    }
  }
  EXPECT_TRUE(seen.contains(kRoot / "src/tape/tape.cpp"));
  EXPECT_TRUE(seen.contains(kRoot / "include/vdnn/op_catalog.h")) << "the test also reads included headers";
}

// These headers take seconds to compile, and so would every source that includes a header with one of them.
TEST(Includes, HeadersIncludeNoHeavyHeaders) {
  const std::set<std::string> permitted{"src/cli/option_fields.h includes <CLI/CLI.hpp>",
                                        "src/cli/json_fields.h includes <nlohmann/json.hpp>"};
  static const std::regex heavy("<(nlohmann/json|CLI/|cudnn_frontend|gtest/|gmock/|httplib|benchmark/).*>");
  std::set<std::string> found;
  for (const char* folder : {"allocator", "include", "src", "streams"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      if (entry.path().extension() == ".h") {
        for (const std::string& include : includes_of(read(entry.path()))) {
          if (std::regex_match(include, heavy) && include != "<nlohmann/json_fwd.hpp>") {
            found.insert(fs::relative(entry.path(), kRoot).string() + " includes " + include);
          }
        }
      }
    }
  }
  EXPECT_EQ(found, permitted);
}

TEST(Includes, TheReaderFindsEveryForm) {
  EXPECT_EQ(includes_of("#pragma once\n#include <vector>\n  #  include \"vdnn/tape.h\"\n// #include <no>\n"),
            (std::vector<std::string>{"<vector>", "\"vdnn/tape.h\""}));
}

TEST(Includes, TheRuleRejectsEveryOtherDirectory) {
  const fs::path plan = "src/plan/plan.cpp";
  for (const char* include :
       {"\"vdnn/device.h\"", "\"vdnn/device_pool.h\"", "\"vdnn/op_library.h\"", "\"vdnn/cpu_ops.h\"",
        "\"vdnn/executor.h\"", "\"vdnn/network.h\"", "\"vdnn/dataset.h\"", "\"streams/stream.h\"",
        "<dnnl.hpp>", "<cuda_runtime.h>", "<nlohmann/json.hpp>", "<vdnn/device.h>"}) {
    EXPECT_FALSE(may_include(plan, include)) << include;
  }
  EXPECT_TRUE(may_include("src/plan/schedule_file.cpp", "<nlohmann/json.hpp>"));
  EXPECT_TRUE(may_include(plan, "<unordered_set>"));
}

}  // namespace
}  // namespace vdnn
