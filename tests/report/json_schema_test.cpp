#include "tests/report/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace vdnn::testing::json_schema_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> errors(const char* schema, const char* value) {
  return SchemaCheck::errors(Json::parse(schema), Json::parse(value));
}

TEST(JsonSchema, ChecksTypes) {
  const std::vector<std::pair<const char*, const char*>> samples{{"object", "{}"},    {"array", "[]"},
                                                                 {"string", "\"1\""}, {"boolean", "true"},
                                                                 {"null", "null"},    {"integer", "1"}};
  for (const auto& [type, own] : samples) {
    for (const auto& [other, value] : samples) {
      const Json schema = {{"type", type}};
      EXPECT_EQ(SchemaCheck::errors(schema, Json::parse(value)).empty(), std::string(type) == other)
          << type << " " << value;
    }
  }
  EXPECT_THAT(errors(R"({"type": "number"})", "1.5"), IsEmpty());
  EXPECT_THAT(errors(R"({"type": "number"})", "1"), IsEmpty());
  EXPECT_THAT(errors(R"({"type": "integer"})", "1.5"), Not(IsEmpty()));
  EXPECT_THAT(errors(R"({"type": ["integer", "null"]})", "null"), IsEmpty());
  EXPECT_THAT(errors(R"({"type": ["integer", "null"]})", "true"), Not(IsEmpty()));
}

TEST(JsonSchema, ChecksValues) {
  EXPECT_THAT(errors(R"({"const": 1})", "1"), IsEmpty());
  EXPECT_THAT(errors(R"({"const": 1})", "2"), ElementsAre("/: expected 1, found 2"));
  EXPECT_THAT(errors(R"({"enum": ["a", "b"]})", "\"b\""), IsEmpty());
  EXPECT_THAT(errors(R"({"enum": ["a", "b"]})", "\"c\""), Not(IsEmpty()));
  EXPECT_THAT(errors(R"({"minimum": 1})", "1"), IsEmpty());
  EXPECT_THAT(errors(R"({"minimum": 1})", "0"), Not(IsEmpty()));
  EXPECT_THAT(errors(R"({"minimum": 0})", "18446744073709551615"), IsEmpty());
  EXPECT_THAT(errors(R"({"minimum": 0})", "-1"), Not(IsEmpty()));
  EXPECT_THAT(errors(R"({"minItems": 1})", "[0]"), IsEmpty());
  EXPECT_THAT(errors(R"({"minItems": 1})", "[]"), Not(IsEmpty()));
}

TEST(JsonSchema, ChecksObjectsAndArrays) {
  const char* const schema = R"({"type": "object", "required": ["a"], "additionalProperties": false,
                                 "properties": {"a": {"type": "array", "items": {"type": "integer"}}, "b": {}}})";
  EXPECT_THAT(errors(schema, R"({"a": [1, 2]})"), IsEmpty());
  EXPECT_THAT(errors(schema, R"({"a": [], "b": "anything"})"), IsEmpty());
  EXPECT_THAT(errors(schema, R"({"b": 1})"), ElementsAre("/: 'a' is missing"));
  EXPECT_THAT(errors(schema, R"({"a": [], "c": 1})"), ElementsAre("/c: must not be there"));
  EXPECT_THAT(errors(schema, R"({"a": [1, "2"]})"), ElementsAre(HasSubstr("/a/1: expected")));
  EXPECT_THAT(errors(schema, "[]"), Not(IsEmpty()));
}

TEST(JsonSchema, FollowsReferences) {
  const char* const schema =
      R"({"$defs": {"size": {"minimum": 1}, "two": {"items": {"$ref": "#/$defs/size"}}},
                                 "oneOf": [{"type": "null"}, {"type": "array", "$ref": "#/$defs/two"}]})";
  EXPECT_THAT(errors(schema, "[1, 2]"), IsEmpty());
  EXPECT_THAT(errors(schema, "[1, 0]"), ElementsAre(HasSubstr("/1: expected at least 1")));
  EXPECT_THROW(errors(R"({"$ref": "#/$defs/none"})", "1"), Json::exception);
}

TEST(JsonSchema, ChecksAlternatives) {
  const char* const schema = R"({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]})";
  EXPECT_THAT(errors(schema, R"({"a": 1})"), IsEmpty());
  EXPECT_THAT(errors(schema, R"({"b": 1})"), IsEmpty());
  EXPECT_THAT(errors(schema, R"({"a": 1, "b": 1})"), Not(IsEmpty()));
  EXPECT_THAT(errors(schema, R"({})"), Not(IsEmpty()));
}

TEST(JsonSchema, RefusesKeywordsThatItDoesNotCheck) {
  EXPECT_THROW(errors(R"({"maximum": 1})", "0"), std::invalid_argument);
  EXPECT_THROW(errors(R"({"type": "float"})", "0"), std::invalid_argument);
}

}  // namespace
}  // namespace vdnn::testing::json_schema_test
