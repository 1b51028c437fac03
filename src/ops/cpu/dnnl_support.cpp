#include "src/ops/cpu/dnnl_support.h"

#include <omp.h>

#include <array>

#include "vdnn/error.h"

namespace vdnn::cpu {

ThreadScope::ThreadScope(int threads)
    : threads_before_(omp_get_max_threads()), dynamic_before_(omp_get_dynamic()) {
  omp_set_dynamic(0);
  omp_set_num_threads(threads);
}

ThreadScope::~ThreadScope() {
  omp_set_num_threads(threads_before_);
  omp_set_dynamic(dynamic_before_);
}

dnnl::memory::dims to_dnnl(const Dims& dims) {
  return {dims.begin(), dims.end()};
}

dnnl::memory::desc dense_desc(const Dims& dims) {
  using Tag = dnnl::memory::format_tag;
  static constexpr std::array kChannelsLastTags{Tag::a, Tag::ab, Tag::acb, Tag::acdb, Tag::acdeb};
  if (dims.empty() || dims.size() > kChannelsLastTags.size()) {
    throw InvalidArgument("the cpu computes tensors of one to five dimensions, got " + to_string(dims));
  }
  return {to_dnnl(dims), dnnl::memory::data_type::f32, kChannelsLastTags.at(dims.size() - 1)};
}

dnnl::memory::desc any_desc(const Dims& dims) {
  return {to_dnnl(dims), dnnl::memory::data_type::f32, dnnl::memory::format_tag::any};
}

std::string layout_name(const dnnl::memory::desc& desc) {
  const dnnl_blocking_desc_t& blocking = desc.data.format_desc.blocking;
  std::string name = "dims";
  for (int dim = 0; dim < desc.data.ndims; ++dim) {
    name += " " + std::to_string(desc.data.dims[dim]);
  }
  name += " strides";
  for (int dim = 0; dim < desc.data.ndims; ++dim) {
    name += " " + std::to_string(blocking.strides[dim]);
  }
  for (int block = 0; block < blocking.inner_nblks; ++block) {
    name += " block " + std::to_string(blocking.inner_blks[block]) + " of dim " +
            std::to_string(blocking.inner_idxs[block]);
  }
  return name;
}

}  // namespace vdnn::cpu
