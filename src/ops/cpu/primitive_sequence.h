#pragma once
// An op as a sequence of oneDNN primitives over the memory of its operands. A sequence is first planned,
// which determines its workspace. build() then makes a kernel from it. The catalog and the program use the
// same sequence, so the workspace that the catalog counts is the workspace in use.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/ops/cpu/dnnl_support.h"
#include "src/ops/cpu/kernel.h"

namespace vdnn::cpu {

class PrimitiveSequence {
 public:
  // Where a memory object of the sequence is: an operand, or an offset into the workspace.
  enum class Source : std::uint8_t { kRead, kWrite, kWorkspace };
  struct Place {
    Source source = Source::kRead;
    std::uint64_t position = 0;  // index of the operand, or offset in bytes
    dnnl::memory::desc desc;
  };
  using PlaceIndex = std::size_t;
  struct Argument {
    int name = 0;  // DNNL_ARG_...
    PlaceIndex place = 0;
  };
  struct Step {
    dnnl::primitive_desc_base primitive;
    std::vector<Argument> arguments;
  };

  PlaceIndex read(std::uint32_t operand, const dnnl::memory::desc& desc);
  PlaceIndex write(std::uint32_t operand, const dnnl::memory::desc& desc);
  // Reserves a piece of the workspace.
  PlaceIndex scratch(const dnnl::memory::desc& desc);
  // Appends a primitive, which must have been made with scratchpad_attributes(). Its scratchpad is added to
  // the workspace.
  void append(const dnnl::primitive_desc_base& primitive, std::vector<Argument> arguments);
  void append_reorder(const dnnl::engine& engine, PlaceIndex from, PlaceIndex to);

  std::uint64_t workspace_bytes() const { return workspace_bytes_; }
  std::unique_ptr<CpuKernel> build(const Context& context) const;

 private:
  PlaceIndex add(Source source, std::uint64_t position, const dnnl::memory::desc& desc);

  std::vector<Place> places_;
  std::vector<Step> steps_;
  std::uint64_t workspace_bytes_ = 0;
};

// Attributes for primitives whose scratchpads the caller provides, as part of the op's workspace.
dnnl::primitive_attr scratchpad_attributes();

// One way to compute an op.
struct Implementation {
  std::string name;
  PrimitiveSequence sequence;
};
std::vector<Algorithm> algorithms_of(const std::vector<Implementation>& implementations);
// Builds the implementation that `request` selects. Throws InvalidArgument if the tape has another name or
// workspace for that index, because the tape was made with another library, for another number of threads or
// on another machine.
std::unique_ptr<CpuKernel> build_requested(const Context& context,
                                           const std::vector<Implementation>& implementations,
                                           const KernelRequest& request);

}  // namespace vdnn::cpu
