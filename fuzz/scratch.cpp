#include "fuzz/scratch.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <system_error>

namespace vdnn::fuzz {

namespace fs = std::filesystem;

Scratch::Scratch() {
  std::string path = (fs::temp_directory_path() / "vdnn_fuzz_XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr) {
    throw std::runtime_error("no directory " + path);
  }
  directory_ = path;
}

Scratch::~Scratch() {
  std::error_code ignored;
  fs::remove_all(directory_, ignored);
}

fs::path Scratch::write(const std::string& name, Input bytes) const {
  fs::path path = directory_ / name;
  std::ofstream file(path, std::ios::binary);
  file.exceptions(std::ios::failbit | std::ios::badbit);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return path;
}

fs::path Scratch::empty_directory(const std::string& name) const {
  fs::path path = directory_ / name;
  fs::remove_all(path);
  fs::create_directory(path);
  return path;
}

const Scratch& scratch() {
  static const Scratch kScratch;
  return kScratch;
}

Bytes read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

namespace {

constexpr std::string_view kBefore = "==> ";
constexpr std::string_view kBehind = " <==\n";
constexpr std::size_t kMostFiles = 64;
constexpr std::size_t kLongestName = 80;

// Removes from `name` all parts that would lead outside the directory. The result may be empty.
fs::path inside(std::string_view name) {
  fs::path path;
  for (const fs::path& part : fs::path(name.substr(0, name.find('\0')))) {
    const std::string text = part.string();
    if (!text.empty() && text != "." && text != ".." && text.front() != '/') {
      path /= text.substr(0, kLongestName);
    }
  }
  return path;
}

void make(const fs::path& path, char kind, const fs::path& directory, Input bytes) {
  std::error_code taken;  // ignored: if a name appears twice, even as file and directory, the first is kept
  switch (kind) {
    case '/':
      fs::create_directory(path, taken);
      break;
    case '|':
      ::mkfifo(path.c_str(), S_IRUSR | S_IWUSR);
      break;
    case '@':
      fs::create_symlink(directory / inside(to_text(bytes)), path, taken);
      break;
    default:
      if (!fs::exists(fs::symlink_status(path, taken))) {
        std::ofstream(path, std::ios::binary)
            .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
      }
  }
}

}  // namespace

std::vector<TreeFile> parse_tree(Input input) {
  std::vector<TreeFile> files;
  const std::string text = to_text(input);
  std::size_t at = text.find(kBefore);
  while (at != std::string::npos && files.size() < kMostFiles) {
    const std::size_t end = text.find(kBehind, at);
    if (end == std::string::npos) {
      break;
    }
    const std::size_t name = at + kBefore.size();
    const std::size_t begin = end + kBehind.size();
    at = text.find(kBefore, begin);
    files.push_back({.name = name < end ? text.substr(name, end - name) : "",
                     .bytes = to_bytes(std::string_view(text).substr(begin, at - begin))});
  }
  return files;
}

Bytes join_tree(const std::vector<TreeFile>& files) {
  Bytes bytes;
  for (const TreeFile& file : files) {
    const Bytes head = to_bytes(std::string(kBefore).append(file.name).append(kBehind));
    bytes.insert(bytes.end(), head.begin(), head.end());
    bytes.insert(bytes.end(), file.bytes.begin(), file.bytes.end());
  }
  return bytes;
}

void unpack(const std::vector<TreeFile>& files, const fs::path& directory) {
  for (const TreeFile& file : files) {
    std::string name = file.name;
    const char kind = !name.empty() && std::string_view("/|@").find(name.back()) != std::string_view::npos
                          ? name.back()
                          : ' ';
    if (kind != ' ') {
      name.pop_back();
    }
    const fs::path relative = inside(name);
    if (relative.empty()) {
      continue;
    }
    std::error_code taken;
    fs::create_directories(directory / relative.parent_path(), taken);
    make(directory / relative, kind, directory, file.bytes);
  }
}

}  // namespace vdnn::fuzz
