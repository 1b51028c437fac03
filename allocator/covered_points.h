#pragma once
// Points that need not be kept, since whoever is ordered after others is ordered after them anyway.

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
