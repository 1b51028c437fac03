#include "vdnn/option_error.h"

#include <gtest/gtest.h>

namespace vdnn {
namespace {

TEST(OptionErrors, NameOptionsAsTheLibraryDoes) {
  EXPECT_STREQ(InvalidOption({{.option = "model.batch", .value = "0"}}, "it is above 0").what(),
               "model.batch = 0: it is above 0");
  EXPECT_STREQ(InvalidOption({{.option = "policies", .value = ""}}, "there is none").what(),
               "policies: there is none");
  EXPECT_STREQ(UnsuitableOptions("2 classes", {{.option = "model.input", .value = "1x8x8"},
                                               {.option = "model.classes", .value = "2"}})
                   .what(),
               "2 classes; use model.input = 1x8x8, model.classes = 2");
}

}  // namespace
}  // namespace vdnn
