// System calls on files fail once: each call in the list of tests/crash/CMakeLists.txt that loading or saving
// a checkpoint makes. Either the error names the file, or the failure does no harm. The previous file is
// still there and whole, unless the new one has replaced it. The next save succeeds and leaves no other file,
// no file stays open, and training goes on as if nothing had been saved. Interrupting signals and short reads
// and writes cause no error at all.
//
// Not covered: stat(), with which <filesystem> finds errors early that open() and fstatat() would find later;
// fstatvfs(), which only adds to an error's text; closedir(), whose result does not matter.

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <iterator>

#include "tests/crash/system_calls.h"
#include "tests/faults/fault_case.h"
#include "tests/temporary_directory.h"

namespace vdnn::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::array<int, 3> kErrors = {EIO, ENOSPC, EINTR};

class FailingFiles : public TemporaryDirectory, public ::testing::WithParamInterface<FaultParameter> {
 protected:
  static std::size_t open_files() {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator("/proc/self/fd"), {}));
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory_), {}));
  }

  // Runs `body` while its call `fail_at` fails. Returns the number of calls.
  template <class Body>
  std::uint64_t failing(std::uint64_t fail_at, const Body& body) {
    const std::size_t open_before = open_files();
    std::uint64_t calls = 0;
    error_ = typed_error_of([&] {
      fail_call(fail_at, kErrors[fail_at % kErrors.size()]);
      try {
        body();
      } catch (...) {
        calls = calls_made();
        fail_call(0, 0);
        throw;
      }
      calls = calls_made();
      fail_call(0, 0);
    });
    EXPECT_EQ(open_files(), open_before);
    if (!error_.empty()) {
      EXPECT_NE(error_.find(directory_.string()), std::string::npos) << error_;
    }
    return calls;
  }

  std::string error_;
};

TEST_P(FailingFiles, LeaveTheCheckpointThatWasThereAndASessionThatGoesOn) {
  const std::uint64_t stride = fault_stride(1);
  const FaultCase of(GetParam(), directory_);
  Session session(of.run);
  session.restore(of.state);
  one_step(session);
  save_checkpoint(of.saved, session);
  const std::string next = read("saved");
  const std::string previous = read("checkpoint");
  ASSERT_NE(next, previous);
  std::uint64_t told = 0;
  fail_points("call", stride, [&](std::uint64_t fail_at) {
    fs::copy_file(of.checkpoint, of.saved, fs::copy_options::overwrite_existing);
    write("saved.vdnn-tmp1", "of a killed process");
    const std::uint64_t calls = failing(fail_at, [&] { save_checkpoint(of.saved, session); });
    told += error_.empty() ? 0 : 1;
    // If the directory cannot be forced to the disk, the failure is reported, but the new file is in place.
    const bool in_place = error_.empty() || error_.find("the file is in place") != std::string::npos;
    EXPECT_TRUE(read("saved") == (in_place ? next : previous)) << error_;
    save_checkpoint(of.saved, session);
    EXPECT_EQ(read("saved"), next);
    EXPECT_EQ(files(), 2U) << "the next save has not removed all temporary files";
    return calls;
  });
  EXPECT_GE(told, 10U / stride);
  fail_points("call", stride, [&](std::uint64_t fail_at) {
    Session other(of.run);
    const std::uint64_t calls = failing(fail_at, [&] { load_checkpoint(of.checkpoint, other); });
    of.expect_mended(other);
    return calls;
  });
  fs::copy_file(of.checkpoint, of.saved, fs::copy_options::overwrite_existing);
  disturb_calls();
  save_checkpoint(of.saved, session);
  EXPECT_EQ(read("saved"), next);
  Session other(of.run);
  disturb_calls();
  load_checkpoint(of.checkpoint, other);
  fail_call(0, 0);
  one_step(other);
  EXPECT_EQ(other.weights_sha256(), of.usual);
  // The session's state is as if nothing had been saved.
  EXPECT_EQ(session.weights_sha256(), of.usual);
}

INSTANTIATE_TEST_SUITE_P(Networks, FailingFiles, fault_parameters(), name_of_fault_parameter);

}  // namespace
}  // namespace vdnn::testing
