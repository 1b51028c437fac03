// The drawings of a plan's report, exact to the unit.

#include "src/report/report_drawing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace vdnn::report_drawing_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A step of 10 seconds with one feature map, which is fetched at 1, needed from 2 to 5, and released at 6.
StepPicture picture() {
  StepPicture result;
  result.step_seconds = 10;
  result.work = {
      {.kind = InstructionKind::kPrefetch, .stream = StreamRole::kPrefetch, .value = 0, .begin = 1, .end = 2},
      {.kind = InstructionKind::kLaunch, .op = 0, .phase = Phase::kBackward, .begin = 2, .end = 5}};
  result.stays = {{.value = 0,
                   .content = Content::kFeatureMaps,
                   .address = 25,
                   .bytes = 50,
                   .begin = 1,
                   .needed_from = 2,
                   .needed_until = 5,
                   .end = 6,
                   .work = {0, 1}}};
  result.handed_out = {{.seconds = 0.5, .bytes = 60}, {.seconds = 7, .bytes = 0}};
  return result;
}

using Draw = void (*)(std::ostream&, const StepPicture&, std::uint64_t);

std::string drawn(Draw draw, const StepPicture& picture) {
  std::ostringstream out;
  draw(out, picture, 100);
  return out.str();
}

std::string drawn_streams(const StepPicture& picture) {
  std::ostringstream out;
  draw_streams(out, picture);
  return out.str();
}

TEST(ReportDrawing, PlacesAValueWhereItLiesByWhatItIsThereFor) {
  EXPECT_EQ(
      drawn(draw_places, picture()),
      "<rect class=\"ahead\" x=\"10000\" y=\"2500\" width=\"10000\" height=\"5000\" data-stay=\"0\"/>\n"
      "<rect class=\"maps\" x=\"20000\" y=\"2500\" width=\"30000\" height=\"5000\" data-stay=\"0\"/>\n"
      "<rect class=\"leaving\" x=\"50000\" y=\"2500\" width=\"10000\" height=\"5000\" data-stay=\"0\"/>\n");
}

TEST(ReportDrawing, WhatBeginsBeforeTheStepStandsAtItsEndToo) {
  StepPicture early = picture();
  early.stays[0].begin = early.stays[0].needed_from = -3;
  early.stays[0].needed_until = early.stays[0].end = 4;
  EXPECT_EQ(drawn(draw_places, early),
            "<rect class=\"maps\" x=\"70000\" y=\"2500\" width=\"30000\" height=\"5000\" data-stay=\"0\"/>\n"
            "<rect class=\"maps\" x=\"0\" y=\"2500\" width=\"40000\" height=\"5000\" data-stay=\"0\"/>\n");
}

TEST(ReportDrawing, WhatIsAlwaysThereFillsTheStepOnce) {
  StepPicture always = picture();
  always.stays[0].needed_from = always.stays[0].begin;
  always.stays[0].needed_until = always.stays[0].end = 11;
  EXPECT_EQ(drawn(draw_places, always),
            "<rect class=\"maps\" x=\"0\" y=\"2500\" width=\"100000\" height=\"5000\" data-stay=\"0\"/>\n");
}

// The drawing must show all of the data.
TEST(ReportDrawing, WhatTakesNoTimeIsStillDrawn) {
  StepPicture brief = picture();
  brief.work[1].begin = brief.work[1].end = 10;
  EXPECT_THAT(drawn_streams(brief), HasSubstr("width=\"1\" height=\"1876\" data-work=\"1\""));
  brief.stays[0].begin = brief.stays[0].needed_from = brief.stays[0].needed_until = brief.stays[0].end = 2;
  EXPECT_THAT(drawn(draw_places, brief), HasSubstr("width=\"1\" height=\"5000\" data-stay=\"0\""));
}

// Runs of one device have no lane for reductions.
TEST(ReportDrawing, ReductionsHaveALaneWhereThereAreAny) {
  StepPicture alone = picture();
  EXPECT_EQ(lanes(alone), 4U);
  EXPECT_THAT(drawn_streams(alone), HasSubstr("y=\"312\""));
  StepPicture together = picture();
  together.work.push_back({.kind = InstructionKind::kLaunch,
                           .stream = StreamRole::kReduce,
                           .op = 1,
                           .phase = Phase::kUpdate,
                           .begin = 5,
                           .end = 7});
  EXPECT_EQ(lanes(together), 5U);
  EXPECT_THAT(drawn_streams(together),
              HasSubstr("<rect class=\"reduce\" x=\"50000\" y=\"8250\" width=\"20000\" height=\"1500\""));
}

TEST(ReportDrawing, StacksContents) {
  StepPicture two = picture();
  two.stays.push_back({.content = Content::kWorkspace,
                       .bytes = 25,
                       .begin = 2,
                       .needed_from = 2,
                       .needed_until = 4,
                       .end = 4,
                       .work = {}});
  const std::string text = drawn(draw_memory, two);
  // Areas reach down to the axis, so the upper one is drawn first.
  EXPECT_THAT(text, HasSubstr("<path class=\"maps\" d=\"M0 10000h20000v-5000h30000v5000H100000V10000z\"/>"));
  EXPECT_THAT(text, HasSubstr("<path class=\"ahead\" d=\"M0 10000h10000v-5000h50000v5000H100000V10000z\"/>"));
  EXPECT_THAT(
      text,
      HasSubstr("<path class=\"workspace\" d=\"M0 10000h10000v-5000h10000v-2500h20000v2500h20000v5000"));
  EXPECT_LT(text.find("\"workspace\""), text.find("\"maps\""));
}

TEST(ReportDrawing, TheLineOfWhatIsHandedOutGoesOnFromTheStepBefore) {
  EXPECT_THAT(drawn(draw_memory, picture()),
              HasSubstr("<path class=\"handed-out\" d=\"M0 10000H5000V4000H70000V10000H100000\"/>"));
}

TEST(ReportDrawing, AStreamALaneAndWaitsInThatOfCompute) {
  StepPicture waiting = picture();
  waiting.stalls = {{.begin = 1, .end = 2, .awaited = "prefetch"}};
  EXPECT_EQ(
      drawn_streams(waiting),
      "<rect class=\"stall\" x=\"10000\" y=\"312\" width=\"10000\" height=\"1876\" data-stall=\"0\"/>\n"
      "<rect class=\"prefetch\" x=\"10000\" y=\"5312\" width=\"10000\" height=\"1876\" data-work=\"0\"/>\n"
      "<rect class=\"backward\" x=\"20000\" y=\"312\" width=\"30000\" height=\"1876\" data-work=\"1\"/>\n");
}

TEST(ReportDrawing, AnEmptyStepIsEmpty) {
  StepPicture nothing;
  nothing.step_seconds = 1;
  EXPECT_THAT(drawn(draw_places, nothing) + drawn_streams(nothing), Not(HasSubstr("rect")));
  EXPECT_THAT(drawn(draw_memory, nothing), Not(HasSubstr("handed-out")));
}

}  // namespace
}  // namespace vdnn::report_drawing_test
