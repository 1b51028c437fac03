#include "src/ops/cpu/dnnl_support.h"

#include <omp.h>

#include <array>
#include <string_view>

#include "vdnn/error.h"

namespace vdnn::cpu {

bool processor_multiplies_bf16() {
  // The bits of an instruction set include those of all sets that it extends.
  constexpr auto kNeeded = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & kNeeded) == kNeeded;
}

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

dnnl::memory::data_type to_dnnl(DataType type) {
  switch (type) {
    case DataType::kF32:
      return dnnl::memory::data_type::f32;
    case DataType::kBf16:
      return dnnl::memory::data_type::bf16;
    default:
      throw InvalidArgument(std::string("cpu: no op computes ") + to_string(type) + " through oneDNN");
  }
}

dnnl::memory::desc dense_desc(const TensorType& type) {
  const Dims& dims = type.dims;
  using Tag = dnnl::memory::format_tag;
  static constexpr std::array kChannelsLastTags{Tag::a, Tag::ab, Tag::acb, Tag::acdb, Tag::acdeb};
  if (dims.empty() || dims.size() > kChannelsLastTags.size()) {
    throw InvalidArgument("the cpu computes tensors of one to five dimensions, got " + to_string(dims));
  }
  return {to_dnnl(dims), to_dnnl(type.data_type), kChannelsLastTags.at(dims.size() - 1)};
}

dnnl::memory::desc any_desc(const dnnl::memory::desc& desc, dnnl::memory::data_type type) {
  return {desc.dims(), type, dnnl::memory::format_tag::any};
}

dnnl::memory::desc in_type(dnnl::memory::desc desc, dnnl::memory::data_type type) {
  desc.data.data_type = dnnl::memory::convert_to_c(type);
  return desc;
}

bool is_reference(const dnnl::primitive_desc_base& primitive) {
  return std::string_view(primitive.impl_info_str()).find("ref") != std::string_view::npos;
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
