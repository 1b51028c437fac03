#include "allocator/dropin/torch/torch_hooks.h"

#include <string>
#include <utility>

#include "allocator/dropin/torch/torch_error.h"

namespace {

// Never destroyed: tensors are freed after static objects.
vdnn::TorchAllocator& allocator() {
  static auto* const of_process =
      new vdnn::TorchAllocator([](int device) { return vdnn::make_cuda_pool_backend(device); });
  return *of_process;
}

}  // namespace

void* vdnn_torch_malloc(ssize_t bytes, int device, void* stream) {
  vdnn_status status = VDNN_OK;
  void* const block = allocator().allocate(bytes, device, stream, &status);
  if (status == VDNN_OUT_OF_MEMORY) {
    // Some programs, for example those that retry with a smaller batch, look for these first words.
    vdnn::throw_torch_out_of_memory(("CUDA out of memory. " + std::string(vdnn_last_error())).c_str());
  } else if (status != VDNN_OK) {
    vdnn::throw_torch_runtime_error(vdnn_last_error());
  }
  return block;
}

void vdnn_torch_free(void* block, ssize_t /*bytes*/, int /*device*/, void* /*stream*/) {
  allocator().give_back(block);
}

void vdnn_torch_init(int devices) {
  allocator().init(devices);
}

void vdnn_torch_reset() {
  allocator().empty_caches();
}

void vdnn_torch_set_memory_fraction(double fraction, int device) {
  allocator().set_memory_fraction(fraction, device);
}

vdnn_status vdnn_torch_set_budget(std::uint64_t bytes, int device) {
  return allocator().set_budget(bytes, device);
}

void* vdnn_torch_get_base_allocation(void* block, std::size_t* bytes) {
  return allocator().base_of(block, bytes);
}

void vdnn_torch_record_stream(void* block, void* stream) {
  allocator().used_on(block, stream);
}

void vdnn_torch_begin_allocate_to_pool(int device, vdnn::TorchPoolId id, vdnn::TorchStreamFilter filter) {
  allocator().begin(device, id, std::move(filter));
}

void vdnn_torch_end_allocate_to_pool(int device, vdnn::TorchPoolId id) {
  allocator().end(device, id);
}

void vdnn_torch_release_pool(int device, vdnn::TorchPoolId id) {
  allocator().release(device, id);
}

std::uint64_t vdnn_torch_allocated_bytes(int device) {
  return allocator().allocated(device).current;
}

void vdnn_torch_allocated(int device, vdnn_allocator_figure* allocated) {
  *allocated = allocator().allocated(device);
}

void vdnn_torch_reset_peaks(int device) {
  allocator().reset_peaks(device);
}

vdnn_status vdnn_torch_statistics(int device, vdnn_allocator_statistics* statistics) {
  return allocator().statistics(device, statistics);
}

const char* vdnn_torch_last_error() {
  return vdnn_last_error();
}
