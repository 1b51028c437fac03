// The library has no mutable global state, so two devices on two threads are independent. The test combines
// two sources. The symbol tables of the libraries name every writable object, whichever macro or template
// defines it: those in .data and .bss (.tdata, .tbss for thread_local). Constants are in .rodata, or in
// .data.rel.ro if they contain addresses. But a constant initialised at run time is in .bss as well, with a
// guard variable. And g++ puts some constexpr arrays of enums into .data. So the test also checks in the
// sources whether an object is declared const. It ignores variables of other libraries' headers (streams of
// the standard library, logging).

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace vdnn {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> archives() {
  std::vector<std::string> paths;
  std::istringstream list(VDNN_ARCHIVES);
  for (std::string path; std::getline(list, path, ':');) {
    paths.push_back(path);
  }
  return paths;
}

std::string read(const fs::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string sources() {
  std::string text;
  for (const char* room : {"src", "streams", "allocator"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(VDNN_SOURCE_DIR) / room)) {
      if (const fs::path kind = entry.path().extension(); kind == ".cpp" || kind == ".h" || kind == ".cu") {
        text += read(entry.path());
      }
    }
  }
  return text;
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

// True if `text` declares the object (a demangled name) as a constant. A star in between would make it a
// pointer, which can change although its target cannot.
bool declared_const(const std::string& object, const std::string& text) {
  const std::string name = object.substr(object.rfind(':') + 1);
  const std::regex declaration("\\bconst(expr)?\\s[^;={}()*]*\\b" + name + "\\b");
  return std::regex_search(text, declaration);
}

// Objects that exist once per process or thread by their nature, each with its reason.
constexpr std::array<std::string_view, 2> kAdmitted{
    // C programs query it for their thread, like errno.
    "vdnn::(anonymous namespace)::last_error",
    // A process has one handler per signal, and the handler has no argument that could lead it to a device.
    "vdnn::ViolationHandler::instance()::handler"};

bool admitted(const std::string& object) {
  return std::ranges::any_of(kAdmitted, [&](std::string_view name) { return object.ends_with(name); });
}

// Objects that nvcc adds for each kernel, so that its launches find it.
bool made_by_nvcc(const std::string& object) {
  return object.find("__device_stub__") != std::string::npos;
}

// Variables of this program that the test must find, and others that it must not find. They are volatile,
// since the optimizer removes unread ones.
volatile int mutable_global = 1;
thread_local volatile int mutable_thread_local = 0;
constexpr int kConstant = 42;
constexpr const char* kConstantWithAddress = "constant";

volatile int& mutable_in_function() {
  static volatile int counter = 0;
  return counter;
}

TEST(Globals, TheLibrariesHaveNone) {
  ASSERT_FALSE(archives().empty());
  const std::string text = sources();
  std::size_t exceptions = 0;
  for (const std::string& archive : archives()) {
    const std::string symbols = symbols_of(archive);
    EXPECT_NE(symbols.find("vdnn::"), std::string::npos) << "no symbols in " << archive;
    for (const std::string& name : writable_objects(symbols)) {
      if (admitted(name)) {
        ++exceptions;
      } else if (!made_by_nvcc(name) && !declared_const(name, text)) {
        ADD_FAILURE() << archive << ": mutable global state: " << name;
      }
    }
  }
  EXPECT_GE(exceptions, kAdmitted.size()) << "an exception is no longer needed";
}

TEST(Globals, ConstantsAreFoundInTheSources) {
  const std::string text =
      "static const std::array<Profile, 3> kTable{{}};\nconstexpr std::array kTags{1};\n"
      "const char* pointer = nullptr;\nstatic std::map<int, int> cache;\nint f(const int x) { static int n; "
      "}";
  EXPECT_TRUE(declared_const("vdnn::(anonymous namespace)::f()::kTable", text));
  EXPECT_TRUE(declared_const("guard variable for vdnn::f(int)::kTable", text));
  EXPECT_TRUE(declared_const("vdnn::f(std::vector<int> const&)::kTags", text));
  EXPECT_FALSE(declared_const("vdnn::pointer", text));
  EXPECT_FALSE(declared_const("vdnn::cache", text));
  EXPECT_FALSE(declared_const("vdnn::f(int)::n", text));
}

bool found(const std::vector<std::string>& names, const std::string& part) {
  return std::ranges::any_of(names,
                             [&](const std::string& name) { return name.find(part) != std::string::npos; });
}

TEST(Globals, TheReaderFindsThem) {
  mutable_global = 2;
  mutable_in_function() = 3;
  mutable_thread_local = 4;
  const std::array<const void*, 2> constants{&kConstant, &kConstantWithAddress};
  ASSERT_NE(constants[0], constants[1]);
  const std::vector<std::string> names = writable_objects(symbols_of(fs::read_symlink("/proc/self/exe")));
  EXPECT_TRUE(found(names, "mutable_global"));
  EXPECT_TRUE(found(names, "mutable_thread_local"));
  EXPECT_TRUE(found(names, "mutable_in_function"));
  EXPECT_FALSE(found(names, "kConstant"));
}

}  // namespace
}  // namespace vdnn
