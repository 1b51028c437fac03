// The library has no mutable global state: two devices on two threads are two worlds. Text cannot tell a
// mutable variable from a constant (macros, templates, `static` in functions), the symbol tables of the
// libraries can: whatever the program may write lies in .data or .bss (.tdata, .tbss for thread_local).
// Constants lie in .rodata, or in .data.rel.ro where they hold addresses; a `const` object that is
// initialised while the program runs lies in .bss like a mutable one, and counts as one: it would have to be
// constexpr. Variables of other libraries' headers (streams of the standard library, logging) are not ours.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace vdnn {
namespace {

std::vector<std::string> archives() {
  std::vector<std::string> paths;
  std::istringstream list(VDNN_ARCHIVES);
  for (std::string path; std::getline(list, path, ';');) {
    paths.push_back(path);
  }
  return paths;
}

std::string symbols_of(const std::string& file) {
  const std::string command = std::string(VDNN_OBJDUMP) + " --syms --demangle '" + file + "'";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  std::array<char, 4096> buffer{};
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe.get())) {
    text.append(buffer.data(), count);
  }
  return text;
}

// Names of the objects of namespace vdnn in writable sections.
std::vector<std::string> writable_objects(const std::string& symbols) {
  // Address, seven flags (the last: O for an object), section, size, [.hidden] name.
  static const std::regex line(
      R"(^[0-9a-f]+ .{6}[O ] \.(t?data|t?bss)(\.[^r]\S*)?\t[0-9a-f]+ +(.*vdnn::.*)$)");
  std::vector<std::string> names;
  std::istringstream in(symbols);
  for (std::string text; std::getline(in, text);) {
    std::smatch match;
    if (std::regex_match(text, match, line)) {
      names.push_back(match[3]);
    }
  }
  return names;
}

// Variables as the test must find them and as it must not; read back from this very program.
int mutable_global = 1;
thread_local int mutable_thread_local = 0;
constexpr int kConstant = 42;
constexpr const char* kConstantWithAddress = "constant";

int& mutable_in_function() {
  static int counter = 0;
  return counter;
}

TEST(Globals, TheLibrariesHaveNone) {
  ASSERT_FALSE(archives().empty());
  for (const std::string& archive : archives()) {
    const std::string symbols = symbols_of(archive);
    EXPECT_NE(symbols.find("vdnn::"), std::string::npos) << "no symbols in " << archive;
    for (const std::string& name : writable_objects(symbols)) {
      ADD_FAILURE() << archive << ": mutable global state: " << name;
    }
  }
}

bool found(const std::vector<std::string>& names, const std::string& part) {
  return std::ranges::any_of(names,
                             [&](const std::string& name) { return name.find(part) != std::string::npos; });
}

TEST(Globals, TheReaderFindsThem) {
  mutable_thread_local = ++mutable_global + ++mutable_in_function();
  const std::array<const void*, 2> constants{&kConstant, &kConstantWithAddress};
  ASSERT_NE(constants[0], constants[1]);
  const std::vector<std::string> names = writable_objects(symbols_of("/proc/self/exe"));
  EXPECT_TRUE(found(names, "mutable_global"));
  EXPECT_TRUE(found(names, "mutable_thread_local"));
  EXPECT_TRUE(found(names, "mutable_in_function"));
  EXPECT_FALSE(found(names, "kConstant"));
}

}  // namespace
}  // namespace vdnn
