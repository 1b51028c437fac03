#pragma once
// Fuzz targets: readers of untrusted input, the C interfaces called in any order, and programs on the stream
// pool. Each is checked against its contract for arbitrary bytes. A target requires more than the absence of
// crashes: a reader may throw only the exceptions that its header names, and accepted input must be the same
// after it is written and read again.
//
// Two programs share the targets. libFuzzer's (libfuzzer_driver.cpp, `scripts/fuzz`) searches for inputs. The
// test (corpus_test.cpp, in every build) runs the targets' own seeds and the inputs under fuzz/corpus, where
// findings are kept. Only libFuzzer detects small inputs that request much memory: an allocation above 768
// MiB, or a process above 2 GiB.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace vdnn::fuzz {

using Bytes = std::vector<std::uint8_t>;
using Input = std::span<const std::uint8_t>;

struct Seed {
  std::string name;
  Bytes bytes;
};

struct Target {
  std::string_view name;  // also the name of its corpus and its dictionary
  // Returns whether the reader accepted the input. Throws Finding if a contract is broken. An exception that
  // the reader must not throw is passed on to the caller.
  bool (*run)(Input input);
  // Valid inputs, all of which the target must accept.
  std::vector<Seed> (*seeds)();
};

const std::vector<Target>& targets();

// Thrown if a contract is broken.
class Finding : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

inline void require(bool kept, const std::string& contract) {
  if (!kept) {
    throw Finding("broken: " + contract);
  }
}

// The result of `read`; absent if it throws Refusal, the exception that its contract names.
template <class Refusal, class Read>
std::optional<std::invoke_result_t<Read>> attempt(const Read& read) {
  try {
    return read();
  } catch (const Refusal&) {
    return std::nullopt;
  }
}

inline std::string to_text(Input input) {
  return {input.begin(), input.end()};
}
inline Bytes to_bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

// --- the targets, one source each --------------------------------------------------------------------------

bool run_allocation_log(Input input);
std::vector<Seed> allocation_log_seeds();
bool run_c_abi(Input input);
std::vector<Seed> c_abi_seeds();
bool run_checkpoint(Input input);
std::vector<Seed> checkpoint_seeds();
bool run_cifar10(Input input);
std::vector<Seed> cifar10_seeds();
bool run_engine_timings(Input input);
std::vector<Seed> engine_timings_seeds();
bool run_engines(Input input);
std::vector<Seed> engines_seeds();
bool run_fashion_mnist(Input input);
std::vector<Seed> fashion_mnist_seeds();
bool run_idx(Input input);
std::vector<Seed> idx_seeds();
bool run_image(Input input);
std::vector<Seed> image_seeds();
bool run_image_folder(Input input);
std::vector<Seed> image_folder_seeds();
bool run_learned_step(Input input);
std::vector<Seed> learned_step_seeds();
bool run_measured_costs(Input input);
std::vector<Seed> measured_costs_seeds();
bool run_option_text(Input input);
std::vector<Seed> option_text_seeds();
bool run_origin(Input input);
std::vector<Seed> origin_seeds();
bool run_safetensors(Input input);
std::vector<Seed> safetensors_seeds();
bool run_schedule(Input input);
std::vector<Seed> schedule_seeds();
bool run_stash_abi(Input input);
std::vector<Seed> stash_abi_seeds();
bool run_stream_pool(Input input);
std::vector<Seed> stream_pool_seeds();

}  // namespace vdnn::fuzz
