#pragma once
// What the ops that go through oneDNN share.

#include <dnnl.hpp>
#include <string>

#include "vdnn/tensor.h"

namespace vdnn::cpu {

struct Context {
  dnnl::engine engine;
  int threads = 1;
  bool multiplies_bf16 = false;  // the processor does, so that oneDNN's bf16 kernels emulate nothing
};

// Does this processor multiply bf16 (AVX512-BF16), and may oneDNN use that (DNNL_MAX_CPU_ISA)?
bool processor_multiplies_bf16();

// oneDNN asks OpenMP how many threads there are, when a primitive is made (it fixes the partition and the
// scratchpad) and again when it runs. The answer is a setting of the calling thread; this object fixes it for
// a scope. With one thread no team is started.
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
// Dense, of one to five dimensions, channels last: NHWC for feature maps, KRSC for filters.
dnnl::memory::desc dense_desc(const TensorType& type);
// The shape of `desc` in whatever layout an implementation prefers.
dnnl::memory::desc any_desc(const dnnl::memory::desc& desc, dnnl::memory::data_type type);
// The layout of `desc` over elements of another type.
dnnl::memory::desc in_type(dnnl::memory::desc desc, dnnl::memory::data_type type);
// Is it one of oneDNN's references, which are orders of magnitude slower than the others?
bool is_reference(const dnnl::primitive_desc_base& primitive);
// Dimensions, strides and inner blocks in words: equal names, equal layouts. Blocked layouts only, which all
// filters are.
std::string layout_name(const dnnl::memory::desc& desc);

}  // namespace vdnn::cpu
