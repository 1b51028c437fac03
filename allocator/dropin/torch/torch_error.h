#pragma once
// PyTorch's own exception for lack of memory, thrown by a library that is not built against PyTorch.
//
// PyTorch does not check the result of a pluggable allocator, so a refusal has to be thrown. Programs catch
// torch.OutOfMemoryError, which is c10::OutOfMemoryError. Releases of PyTorch export the two symbols that
// are needed to construct it: the constructor of the base class, c10::Error, and the class's own table of
// virtual functions, which identifies the type (Itanium C++ ABI, 2.6 and 2.9). The class adds no member to
// the base.
// Before about 2.6, PyTorch's constructor uses the standard library's older std::string and so has another
// symbol (GCC manual, "Dual ABI").

namespace vdnn {

// Throws c10::OutOfMemoryError with `text`. If PyTorch lacks one of the two symbols, throws
// std::runtime_error, which is RuntimeError in Python. Returns if there is no PyTorch in the process.
void throw_torch_out_of_memory(const char* text);
// Throws std::runtime_error, for failures other than lack of memory. Returns if there is no PyTorch in the
// process.
void throw_torch_runtime_error(const char* text);

// For torch_error.cpp: each calls the constructor of c10::Error, with one of the two types of std::string.
void construct_error_with_cxx11_string(void* constructor, void* error, const char* text);
void construct_error_with_cow_string(void* constructor, void* error, const char* text);

}  // namespace vdnn
