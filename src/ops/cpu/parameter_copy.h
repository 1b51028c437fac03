#pragma once
// The copy of a parameter in a narrow type. If a parameter has a copy, the copy is the last write of the
// parameter's update.

#include "src/ops/cpu/formats.h"
#include "src/ops/cpu/kernel.h"

namespace vdnn::cpu {

class ParameterCopy {
 public:
  // Writes the copy in a running op.
  class Writer {
   public:
    // Copies elements [begin, end) of the parameter.
    void write(const float* parameter, std::uint64_t begin, std::uint64_t end) const {
      if (bits_ == nullptr) {
        return;
      }
      with_format(type_, [&]<class Format>(Format) {
        auto* const copy = static_cast<typename Format::Bits*>(bits_);
#pragma omp simd
        for (std::uint64_t i = begin; i < end; ++i) {
          copy[i] = Format::narrow(parameter[i]);
        }
      });
    }

   private:
    friend class ParameterCopy;
    Writer(DataType type, void* bits) : type_(type), bits_(bits) {}
    DataType type_;
    void* bits_;
  };

  // `request` must be for an update.
  explicit ParameterCopy(const KernelRequest& request) {
    const Value& last = request.tape.value(request.op.writes.back());
    if (last.kind == ValueKind::kParameterCopy) {
      type_ = last.type.data_type;
      operand_ = request.op.writes.size() - 1;
    }
  }

  Writer of(const OpOperands& operands) const {
    return {type_, operand_ == 0 ? nullptr : ops::write_pointer<void>(operands, operand_)};
  }

 private:
  DataType type_ = DataType::kF32;
  std::size_t operand_ = 0;  // index of the write that is the copy; 0 (the parameter itself) if there is none
};

}  // namespace vdnn::cpu
