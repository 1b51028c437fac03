#pragma once
// PyTorch's own exception for want of memory, from a library that is not built against PyTorch.
//
// PyTorch does not check what a pluggable allocator returns, so a refusal has to be thrown. Programs catch
// torch.OutOfMemoryError, which is c10::OutOfMemoryError. A release of PyTorch exports all that makes one:
// the constructor of its base, c10::Error, and the table of its virtual functions, by which the type is known
// (Itanium C++ ABI, 2.6 and 2.9). The class adds no member to its base. PyTorch before 2.6 or so has the
// standard library's older std::string in the constructor, which is another symbol (GCC manual, "Dual ABI").

namespace vdnn {

// Throws c10::OutOfMemoryError with `text`, where PyTorch is in the process; where it lacks one of these
// symbols, std::runtime_error, which is RuntimeError in Python. Returns where there is no PyTorch.
void throw_torch_out_of_memory(const char* text);
// Likewise, for what is no want of memory: std::runtime_error.
void throw_torch_runtime_error(const char* text);

// Calls the constructor of c10::Error that has either std::string. For torch_error.cpp.
void construct_error_with_cxx11_string(void* constructor, void* error, const char* text);
void construct_error_with_cow_string(void* constructor, void* error, const char* text);

}  // namespace vdnn
