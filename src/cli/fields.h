#pragma once
// Arguments as structs that name each of their fields once: `T::visit(arguments, field)` calls field(name,
// value, help) for every field, in order. Both the options of the command line (`--name`, option_fields.h)
// and the keys of JSON (`name`, with _ for -, json_fields.h) come from visit(), so that neither lacks a
// field.
//
// Types of fields: text, whole numbers, real numbers and flags; `std::optional` of these if an absent option
// differs from every value (null in JSON).

#include <optional>

namespace vdnn {

template <class T>
struct OptionalValue {
  using type = T;
  static constexpr bool optional = false;
};
template <class T>
struct OptionalValue<std::optional<T>> {
  using type = T;
  static constexpr bool optional = true;
};

}  // namespace vdnn
