#pragma once
// Files for readers that need a path. Each process has one directory under TMPDIR, and removes it when it
// ends.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/target.h"

namespace vdnn::fuzz {

class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::filesystem::path& directory() const { return directory_; }
  // Writes a file and returns its path.
  std::filesystem::path write(const std::string& name, Input bytes) const;
  // Returns an empty directory; earlier contents are removed.
  std::filesystem::path empty_directory(const std::string& name) const;

 private:
  std::filesystem::path directory_;
};

// The scratch directory of the process. All targets share the directory, and each must tolerate the files of
// the other targets.
const Scratch& scratch();

Bytes read_bytes(const std::filesystem::path& path);

// A tree: several files in one input, in the format of `head`, with a line `==> NAME <==` before each file. A
// name that ends in / is a directory, a name that ends in | is a named pipe, and a name that ends in @ is a
// link whose text is its target. No file or link outside the directory is created.
struct TreeFile {
  std::string name;
  Bytes bytes;
};
std::vector<TreeFile> parse_tree(Input input);
Bytes join_tree(const std::vector<TreeFile>& files);
void unpack(const std::vector<TreeFile>& files, const std::filesystem::path& directory);

}  // namespace vdnn::fuzz
