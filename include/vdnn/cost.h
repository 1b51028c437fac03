#pragma once
// What a piece of work costs, apart from any device. A driver turns it into seconds with its own rates; only
// the `sim` driver needs to.

namespace vdnn {

struct Cost {
  double flops = 0;  // floating-point operations; a multiply-add counts as two
  double bytes = 0;  // read from and written to device memory
};

}  // namespace vdnn
