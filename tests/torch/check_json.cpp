// check_json SCHEMA FILE: checks a file against a schema of docs/, for tests in Python, which has no such
// check in its library. Prints one line per problem; the status is 1 if there is any.

#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/report/json_schema.h"

int main(int count, char** arguments) {
  constexpr int kExpected = 3;
  constexpr int kUsage = 2;
  if (count != kExpected) {
    std::cerr << "check_json SCHEMA FILE\n";
    return kUsage;
  }
  try {
    using vdnn::testing::read_json;
    const std::vector<std::string> errors =
        vdnn::testing::SchemaCheck::errors(read_json(arguments[1]), read_json(arguments[2]));
    for (const std::string& error : errors) {
      std::cout << error << '\n';
    }
    return errors.empty() ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return kUsage;
  }
}
