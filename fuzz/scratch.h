#pragma once
// Files for readers that take a path. One directory a process, under what TMPDIR names, gone at its end.

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
  // Where the file is.
  std::filesystem::path write(const std::string& name, Input bytes) const;
  // A directory with nothing in it, whatever it held.
  std::filesystem::path empty_directory(const std::string& name) const;

 private:
  std::filesystem::path directory_;
};

// The process's. All its targets share it: none may mind what others have left there.
const Scratch& scratch();

Bytes read_bytes(const std::filesystem::path& path);

// Several files in one input, as `head` prints them: `==> NAME <==` on a line of its own before each. A tree
// has such files; a name that ends in / is a directory, in | a named pipe, in @ a link to the name that is
// its text. Whatever a name says, nothing outside the directory is made or linked to.
struct TreeFile {
  std::string name;
  Bytes bytes;
};
std::vector<TreeFile> parse_tree(Input input);
Bytes join_tree(const std::vector<TreeFile>& files);
void unpack(const std::vector<TreeFile>& files, const std::filesystem::path& directory);

}  // namespace vdnn::fuzz
