#pragma once
// What the ops that go through oneDNN share.

#include <dnnl.hpp>
#include <string>

#include "vdnn/tensor.h"

namespace vdnn::cpu {

struct Context {
  dnnl::engine engine;
  int threads = 1;
};

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
// Dense fp32 of one to five dimensions, channels last: NHWC for feature maps, KRSC for filters.
dnnl::memory::desc dense_desc(const Dims& dims);
// The same shape, in whatever layout an implementation prefers.
dnnl::memory::desc any_desc(const Dims& dims);
// Dimensions, strides and inner blocks in words: equal names, equal layouts. Blocked layouts only, which all
// filters are.
std::string layout_name(const dnnl::memory::desc& desc);

}  // namespace vdnn::cpu
