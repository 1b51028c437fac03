#pragma once
// Code shared by the ops that use oneDNN.

#include <dnnl.hpp>
#include <string>

#include "vdnn/tensor.h"

namespace vdnn::cpu {

struct Context {
  dnnl::engine engine;
  int threads = 1;
  bool multiplies_bf16 = false;  // whether the hardware does, so that oneDNN's bf16 kernels need no emulation
};

// True if this processor multiplies bf16 (AVX512-BF16) and DNNL_MAX_CPU_ISA permits oneDNN to use it.
bool processor_multiplies_bf16();

// Sets the calling thread's number of OpenMP threads for a scope. oneDNN reads that number when a primitive
// is created, which fixes the partition and the scratchpad, and again when the primitive runs. With one
// thread, OpenMP starts no team.
class ThreadScope {
 public:
  explicit ThreadScope(int threads);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int threads_before_;
  int dynamic_before_;
};

dnnl::memory::dims to_dnnl(const Dims& dims);
dnnl::memory::data_type to_dnnl(DataType type);
// A dense descriptor of one to five dimensions, channels last: NHWC for feature maps, KRSC for filters.
dnnl::memory::desc dense_desc(const TensorType& type);
// Returns the shape of `desc` with elements of type `type`, and leaves the layout to the implementation.
dnnl::memory::desc any_desc(const dnnl::memory::desc& desc, dnnl::memory::data_type type);
// Returns the layout of `desc` with elements of type `type`.
dnnl::memory::desc in_type(dnnl::memory::desc desc, dnnl::memory::data_type type);
// True for oneDNN's reference implementations, which are orders of magnitude slower than its optimised
// implementations.
bool is_reference(const dnnl::primitive_desc_base& primitive);
// A name made of dimensions, strides and inner blocks: equal names mean equal layouts. Only for blocked
// layouts, which all filters have.
std::string layout_name(const dnnl::memory::desc& desc);

}  // namespace vdnn::cpu
