// Keeps the documentation true. Public headers compile by themselves. docs/api.md names everything that they
// declare and nothing else, and its fragments compile. Files that pages name exist.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/process.h"
#include "tests/temporary_directory.h"

namespace vdnn {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const fs::path kRoot = VDNN_SOURCE_DIR;

std::string read_file(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// The public headers, sorted: "vdnn/groups/network.h", "vdnn/session.h", ...
std::vector<std::string> public_headers() {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "include/vdnn")) {
    if (entry.is_regular_file()) {
      names.push_back(fs::relative(entry.path(), kRoot / "include").string());
    }
  }
  std::ranges::sort(names);
  return names;
}

// Whether the header does nothing but include all headers of one purpose.
bool is_group(const std::string& header) {
  return header.starts_with("vdnn/groups/");
}

std::string include_all() {
  std::string text;
  for (const std::string& header : public_headers()) {
    text += "#include \"" + header + "\"\n";
  }
  return text;
}

// Returns group `group` of every match.
std::vector<std::string> find_all(const std::string& text, const std::string& pattern, std::size_t group) {
  const std::regex regex(pattern, std::regex::ECMAScript | std::regex::multiline);
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), regex), end; match != end; ++match) {
    found.push_back((*match)[group]);
  }
  return found;
}

// --- contents of pages -------------------------------------------------------------------------------------

// The C++ fragments of a page, and its text without fragments.
struct Page {
  std::vector<std::string> cpp;
  std::string text;
};

Page parse_page(const std::string& text) {
  Page page;
  std::size_t at = 0;
  while (true) {
    const std::size_t begin = text.find("```", at);
    page.text += text.substr(at, begin - at);
    if (begin == std::string::npos) {
      return page;
    }
    const std::size_t body = text.find('\n', begin) + 1;
    const std::size_t end = text.find("```", body);
    if (text.substr(begin + 3, body - begin - 4) == "cpp") {
      page.cpp.push_back(text.substr(body, end - body));
    }
    at = end == std::string::npos ? end : end + 3;
  }
}

std::set<std::string> code_spans(const Page& page) {
  const std::vector<std::string> spans = find_all(page.text, "`([^`\n]+)`", 1);
  return {spans.begin(), spans.end()};
}

// Whether the span is one of our names: a type, anything with a scope, or a function with its parentheses.
// Names of CMake targets and of other namespaces are not ours.
bool names_a_declaration(const std::string& span) {
  static const std::regex declaration(R"(([A-Z]\w*|k[A-Z]\w*)(::\w+)*(\(\))?|[a-z]\w*\(\))");
  return std::regex_match(span, declaration) &&
         !std::regex_match(span, std::regex("[A-Z_0-9]+"));  // placeholders and macros
}

std::string without_parentheses(const std::string& span) {
  return span.substr(0, span.find('('));
}

// A declaration, in namespace n`number`, that compiles only if the name exists.
std::string use(const std::string& name, std::size_t number) {
  const std::size_t scope = name.rfind("::");
  const std::string open = "namespace n" + std::to_string(number) + " { ";
  if (scope == std::string::npos) {
    return open + "using vdnn::" + name + "; }\n";
  }
  if (std::regex_match(name.substr(scope), std::regex("::k[A-Z].*"))) {
    return open + "using vdnn::" + name + "; }\n";  // enumerator
  }
  const std::string type = "vdnn::" + name.substr(0, scope);
  return open + "struct Use : " + type + " { using " + type + name.substr(scope) + "; }; }\n";
}

// --- what headers declare ----------------------------------------------------------------------------------

// Types, functions and constants at namespace scope, which our formatting places at the beginning of a line.
std::set<std::string> declarations(const std::string& header) {
  std::set<std::string> names;
  for (
      const char* pattern :
      {R"(^(?:class|struct|enum class) (\w+)(?: final)?(?: : [^;{]+)? \{)", R"(^using (\w+) =)",
       R"(^(?:inline )?constexpr [\w:]+ (\w+) =)",
       R"(^(?=\w)(?!using |return |class |struct |enum |namespace |template|static_assert|#|//)[\w:<>,&*\[\] ]+[ *&](\w+)\()"}) {
    std::ranges::copy(find_all(header, pattern, 1), std::inserter(names, names.end()));
  }
  return names;
}

class DocsTest : public testing::TemporaryDirectory {
 protected:
  // The message of a failure contains the compiler's output.
  ::testing::AssertionResult compiles(const std::string& text) const {
    write("unit.cpp", text);
    const testing::Outcome outcome =
        testing::run_process(std::string(VDNN_CXX_COMPILER) +
                             " -std=c++20 -fsyntax-only -Wall -Wextra -Wshadow -Werror "
                             "-Wno-missing-field-initializers -Wno-unused -I'" +
                             (kRoot / "include").string() + "' '" + (directory_ / "unit.cpp").string() + "'");
    return outcome.status == 0 ? ::testing::AssertionSuccess()
                               : ::testing::AssertionFailure() << outcome.text;
  }
};

// --- headers -----------------------------------------------------------------------------------------------

class PublicHeaders : public DocsTest, public ::testing::WithParamInterface<std::string> {};

INSTANTIATE_TEST_SUITE_P(All, PublicHeaders, ::testing::ValuesIn(public_headers()), [](const auto& test) {
  const fs::path header(test.param);
  return (is_group(test.param) ? "groups_" : "") + header.stem().string();
});

TEST_P(PublicHeaders, CompileByThemselves) {
  EXPECT_TRUE(compiles("#include \"" + GetParam() + "\"\n"));
}

// Public headers include nothing that is not installed, and no other library's headers. One header
// (vdnn/allocator.h) must also compile as C.
TEST_P(PublicHeaders, IncludePublicHeadersAndTheStandardLibraryOnly) {
  const std::vector<std::string> headers = public_headers();
  const std::string text = read_file(kRoot / "include" / GetParam());
  for (const std::string& include : find_all(text, R"re(^\s*#\s*include\s*([<"].*[>"]))re", 1)) {
    const std::string name = include.substr(1, include.size() - 2);
    const bool standard = include[0] == '<' && std::regex_match(name, std::regex(R"([a-z_]+|stdint\.h)"));
    EXPECT_TRUE(standard || std::ranges::binary_search(headers, name)) << include;
  }
}

TEST(HeaderGroups, HaveEachHeaderOnceAndAPlaceOnThePage) {
  const std::set<std::string> spans = code_spans(parse_page(read_file(kRoot / "docs/api.md")));
  std::vector<std::string> grouped;
  std::vector<std::string> others;
  for (const std::string& header : public_headers()) {
    if (is_group(header)) {
      EXPECT_TRUE(spans.contains(header)) << header;
      std::ranges::copy(find_all(read_file(kRoot / "include" / header), R"re(^#include "(.*)"$)re", 1),
                        std::back_inserter(grouped));
    } else {
      others.push_back(header);
    }
  }
  std::ranges::sort(grouped);
  EXPECT_EQ(grouped, others);
}

// --- docs/api.md -------------------------------------------------------------------------------------------

TEST(Api, NamesEveryHeaderAndAllThatItDeclares) {
  const std::set<std::string> spans = code_spans(parse_page(read_file(kRoot / "docs/api.md")));
  for (const std::string& header : public_headers()) {
    EXPECT_TRUE(is_group(header) || spans.contains(fs::path(header).filename().string())) << header;
    for (const std::string& name : declarations(read_file(kRoot / "include" / header))) {
      EXPECT_TRUE(spans.contains(name) || spans.contains(name + "()")) << header << ": " << name;
    }
  }
}

// The public enumerations of a header, members of classes included, each with its values.
std::vector<std::pair<std::string, std::vector<std::string>>> public_enumerations(const std::string& header) {
  static const std::regex enumeration(R"((?:enum class|typedef enum) (\w+)[^{;]*\{([^}]*)\})");
  static const std::regex comment(R"(//[^\n]*|/\*[^*]*\*/)");
  std::vector<std::pair<std::string, std::vector<std::string>>> found;
  for (std::sregex_iterator match(header.begin(), header.end(), enumeration), end; match != end; ++match) {
    const std::string before = match->prefix();
    const std::size_t closed = before.find("private:");
    if (closed == std::string::npos || before.find("\n};", closed) != std::string::npos) {
      const std::string values = std::regex_replace((*match)[2].str(), comment, "");
      found.emplace_back((*match)[1], find_all(values, R"(\b(k[A-Z]\w*|VDNN_\w+))", 1));
    }
  }
  return found;
}

TEST(Api, ListsTheValuesOfEveryEnumeration) {
  const std::string whole_page = read_file(kRoot / "docs/api.md");
  const std::string page = whole_page.substr(whole_page.find("\n## Enumerations\n"));
  std::size_t enumerations = 0;
  for (const std::string& header : public_headers()) {
    const std::string file = fs::path(header).filename().string();
    for (const auto& [name, values] : public_enumerations(read_file(kRoot / "include" / header))) {
      ++enumerations;
      std::string pattern = "^\\| `(?:\\w+::)*";
      pattern.append(name).append("` \\(`").append(file).append("`\\) \\| (.*) \\|$");
      const std::vector<std::string> row = find_all(page, pattern, 1);
      ASSERT_EQ(row.size(), 1U) << header << ": " << name;
      EXPECT_EQ(find_all(row[0], R"(\b(k[A-Z]\w*|VDNN_\w+))", 1), values) << header << ": " << name;
    }
  }
  EXPECT_GT(enumerations, 30U) << "they were found";
}

TEST(DocsReader, FindsPublicEnumerations) {
  const auto found = public_enumerations(
      "enum class A : int {\n  kX,  // kNot\n  kY\n};\nclass C {\n private:\n  enum class B { kZ };\n};\n"
      "typedef enum vdnn_c { VDNN_C = 0, /* VDNN_NOT */ VDNN_D } vdnn_c;\n");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].first, "A");
  EXPECT_THAT(found[0].second, ElementsAre("kX", "kY"));
  EXPECT_EQ(found[1].first, "vdnn_c");
  EXPECT_THAT(found[1].second, ElementsAre("VDNN_C", "VDNN_D"));
}

// --- the version -------------------------------------------------------------------------------------------

TEST(Version, IsThatOfTheLatestChangesAndStandsInOnePlace) {
  const std::vector<std::string> version =
      find_all(read_file(kRoot / "CMakeLists.txt"), R"(^project\(vdnn VERSION (\d+\.\d+\.\d+) )", 1);
  ASSERT_EQ(version.size(), 1U);
  const std::vector<std::string> changes =
      find_all(read_file(kRoot / "CHANGELOG.md"), R"(^## (\d+\.\d+\.\d+))", 1);
  ASSERT_FALSE(changes.empty());
  EXPECT_EQ(changes.front(), version.front());
  EXPECT_EQ(
      testing::run_process(
          "cd '" + kRoot.string() + "' && grep -rlwF '" + version.front() +
          "' CMakeLists.txt cmake allocator include python scripts src streams --exclude-dir=__pycache__")
          .text,
      "CMakeLists.txt\n");
}

class ApiNames : public DocsTest {};

TEST_F(ApiNames, AreDeclared) {
  std::string text = include_all();
  std::size_t number = 0;
  for (const std::string& span : code_spans(parse_page(read_file(kRoot / "docs/api.md")))) {
    if (names_a_declaration(span)) {
      text += use(without_parentheses(span), number++);
    }
  }
  EXPECT_GT(number, 100U) << "otherwise the page's names were not found";
  EXPECT_TRUE(compiles(text));
}

class Fragments : public DocsTest, public ::testing::WithParamInterface<std::string> {};

INSTANTIATE_TEST_SUITE_P(Pages, Fragments, ::testing::Values("docs/api.md", "CONTRIBUTING.md"),
                         [](const auto& test) { return fs::path(test.param).stem().string(); });

// A fragment is the body of a function whose parameters are what pages call `network`, `run`, `session` and
// so on.
TEST_P(Fragments, Compile) {
  std::string text = include_all() + "#include <algorithm>\n#include <iostream>\nusing namespace vdnn;\n";
  std::size_t number = 0;
  for (const std::string& fragment : parse_page(read_file(kRoot / GetParam())).cpp) {
    text +=
        "void fragment" + std::to_string(number++) +
        "(Network network, RunOptions options, PlannedRun run, Session& session, std::span<float> images, "
        "std::span<std::int32_t> classes) { {\n" +
        fragment + "} }\n";
  }
  EXPECT_TRUE(compiles(text));
}

// --- every page --------------------------------------------------------------------------------------------

class Pages : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(All, Pages,
                         ::testing::Values("docs/allocator.md", "docs/api.md", "docs/data_parallel.md",
                                           "docs/known_defects.md", "CONTRIBUTING.md"),
                         [](const auto& test) { return fs::path(test.param).stem().string(); });

// Files and folders that code spans name must exist in the tree, except those that a build makes.
TEST_P(Pages, NameFilesThatAreThere) {
  static const std::regex path(R"([a-z_][\w.-]*(/[\w.-]+)*(/|\.(h|cpp|md|txt|json|cmake|in)))");
  const fs::path page = GetParam();
  const std::string text = parse_page(read_file(kRoot / page)).text;
  for (const std::string& span : code_spans({.cpp = {}, .text = text})) {
    if (std::regex_match(span, path) && !span.starts_with("build/")) {
      EXPECT_TRUE(fs::exists(kRoot / span) || fs::exists(kRoot / "include" / span) ||
                  fs::exists(kRoot / "include/vdnn" / span))
          << span;
    }
  }
  for (const std::string& link : find_all(text, R"(\]\(([^)#:]+)\))", 1)) {
    EXPECT_TRUE(fs::exists((kRoot / page).parent_path() / link)) << link;
  }
}

// "Suite.Name" of every test, without instantiation prefixes.
std::set<std::string> declared_tests(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".cpp") {
      const std::string text = read_file(entry.path());
      const std::vector<std::string> suites = find_all(text, R"(^TEST(_F|_P)?\(\s*(\w+),\s*\w+\))", 2);
      const std::vector<std::string> tests = find_all(text, R"(^TEST(_F|_P)?\(\s*\w+,\s*(\w+)\))", 2);
      for (std::size_t i = 0; i < suites.size(); ++i) {
        names.insert(suites[i] + "." + tests[i]);
      }
    }
  }
  return names;
}

TEST(KnownDefectsPage, NamesTestsThatAreThereAndAllThatAreNamedAfterDefects) {
  const std::set<std::string> declared = declared_tests(kRoot / "tests");
  std::set<std::string> named;
  for (const std::string& span : code_spans(parse_page(read_file(kRoot / "docs/known_defects.md")))) {
    if (std::regex_match(span, std::regex(R"([A-Z]\w+\.[A-Z]\w+)"))) {
      EXPECT_TRUE(declared.contains(span)) << span;
      named.insert(span);
    }
  }
  const std::set<std::string> own = declared_tests(kRoot / "tests/defects");
  EXPECT_FALSE(own.empty());
  for (const std::string& test : own) {
    EXPECT_TRUE(named.contains(test)) << test << " is not in docs/known_defects.md";
  }
}

// --- the readers of this test ------------------------------------------------------------------------------

TEST(DocsReader, FindsFragmentsAndSpans) {
  const Page page = parse_page("a `Session::step()`\n```cpp\nint x;\n```\n`b`\n```\nno\n```\nend `cpu`\n");
  EXPECT_THAT(page.cpp, ElementsAre("int x;\n"));
  EXPECT_THAT(code_spans(page), ElementsAre("Session::step()", "b", "cpu"));
}

TEST(DocsReader, KnowsDeclarationsFromWords) {
  for (const char* name : {"Session", "Session::step()", "plan_run()", "Policy::kOffloadAll", "kNone"}) {
    EXPECT_TRUE(names_a_declaration(name)) << name;
  }
  for (const char* word : {"cpu", "vdnn::vdnn", "std::span", "sim:titan-x", "-fPIC", "NAME", "session.h"}) {
    EXPECT_FALSE(names_a_declaration(word)) << word;
  }
}

TEST(DocsReader, FindsWhatHeadersDeclare) {
  EXPECT_THAT(
      declarations("struct A {\n  int inner();\n};\nclass Forward;\nclass B : public A {\n"
                   "enum class C : std::uint8_t { kX };\nusing D = int;\ninline constexpr int kE = 1;\n"
                   "std::vector<std::string> f(const A& a,\n                           int b);\n"
                   "// g(x)\ninline bool h() {\n  return i(1);\n}\nusing namespace j;\n"),
      ElementsAre("A", "B", "C", "D", "f", "h", "kE"));
}

class DocsCompiler : public DocsTest {};

TEST_F(DocsCompiler, SaysWhatIsWrong) {
  const std::string header = "#include \"vdnn/session.h\"\n";
  EXPECT_TRUE(compiles(header + use("Session::step", 0) + use("Policy::kOffloadAll", 1)));
  const ::testing::AssertionResult result = compiles(header + use("Session::leap", 0));
  EXPECT_FALSE(result);
  EXPECT_THAT(result.message(), HasSubstr("leap"));
}

}  // namespace
}  // namespace vdnn
