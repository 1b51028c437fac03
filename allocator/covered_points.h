#pragma once
// Points that a frontier need not keep, since its other points imply them.

#include "vdnn/frontier.h"

namespace vdnn {

class CoveredPoints {
 public:
  virtual ~CoveredPoints() = default;
  CoveredPoints() = default;
  CoveredPoints(const CoveredPoints&) = delete;
  CoveredPoints& operator=(const CoveredPoints&) = delete;

  virtual bool contain(Point point) const = 0;
};

}  // namespace vdnn
