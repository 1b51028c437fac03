#include "vdnn/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/samples.h"
#include "vdnn/error.h"

namespace vdnn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string problem(const std::string& text) {
  return testing::problem<InvalidArgument>([&text] {
    open_dataset({.text = text, .sample_dims = {1, 28, 28}, .classes = 10});
  });
}

TEST(OpenDataset, SaysWhatThereIs) {
  for (const char* const text : {"", "mnist", "fashion", "synthetic:dir", "fashion-mnist:", "Synthetic"}) {
    EXPECT_THAT(problem(text), HasSubstr(std::string("'") + text + "'"));
  }
  EXPECT_THAT(problem("mnist"), AllOf(HasSubstr("fashion-mnist[:DIR]"), HasSubstr("synthetic")));
  EXPECT_THAT(problem("cifar10:somewhere"), HasSubstr("this version does not have cifar10"));
  EXPECT_THAT(problem("images:somewhere"), HasSubstr("this version does not have images"));
}

}  // namespace
}  // namespace vdnn
