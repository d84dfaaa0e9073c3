#include "transport/manager/message_fill.hpp"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/wrappers.pb.h>

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

namespace cenote::manager {

namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using simdjson::dom::element;

const FieldDescriptor* field_named(const Descriptor& type, std::string_view name) {
  const std::string text(name);
  if (const auto* field = type.FindFieldByName(text)) return field;
  return type.FindFieldByCamelcaseName(text);
}

/// A whole number as JSON or decimal text, also where it is written as 1.0 or 10e-1.
template <std::integral Number>
std::optional<Number> number_of(element value) {
  if (std::int64_t number = 0; value.is_int64() && !value.get(number)) {
    return std::in_range<Number>(number) ? std::optional(static_cast<Number>(number)) : std::nullopt;
  }
  if (std::uint64_t number = 0; value.is_uint64() && !value.get(number)) {
    return std::in_range<Number>(number) ? std::optional(static_cast<Number>(number)) : std::nullopt;
  }
  if (double number = 0; value.is_double() && !value.get(number)) {
    constexpr double exact = 9'007'199'254'740'992;  // beyond it not each whole number is a double
    if (number != std::trunc(number) || std::abs(number) > exact) return std::nullopt;
    const auto whole = static_cast<std::int64_t>(number);
    return std::in_range<Number>(whole) ? std::optional(static_cast<Number>(whole)) : std::nullopt;
  }
  std::string_view text;
  Number number = 0;
  if (value.get(text) != simdjson::SUCCESS) return std::nullopt;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  return read.ec == std::errc() && read.ptr == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

std::optional<double> double_of(element value) {
  double number = 0;
  if (value.is_number() && !value.get(number)) return number;
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) return std::nullopt;
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = read.ec == std::errc() && read.ptr == text.data() + text.size();
  return is_whole && std::isfinite(number) ? std::optional(number) : std::nullopt;
}

/// Base64 in either alphabet, with its padding or without.
std::optional<std::string> bytes_of(element value) {
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  if (padding != 0 && text.size() % 4 != 0) return std::nullopt;
  text.remove_suffix(padding);
  if (text.size() % 4 == 1) return std::nullopt;
  std::string bytes;
  std::uint32_t bits = 0;
  unsigned count = 0;
  for (const char letter : text) {
    constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    const std::size_t place = letter == '+' || letter == '-'   ? 62
                              : letter == '/' || letter == '_' ? 63
                                                               : letters.find(letter);
    if (place == std::string_view::npos) return std::nullopt;
    bits = bits << 6U | static_cast<std::uint32_t>(place);
    count += 6;
    if (count >= 8) bytes += static_cast<char>(bits >> (count -= 8));
  }
  return bytes;
}

/// Fills one message.
class message_filler {
 public:
  explicit message_filler(Message& message)
      : message_(message), type_(*message.GetDescriptor()), reflection_(*message.GetReflection()) {}

  [[nodiscard]] std::string fill(simdjson::dom::object object) {
    for (const auto [key, value] : object) {
      const FieldDescriptor* const field = field_named(type_, key);
      if (field == nullptr || value.is_null()) continue;
      if (std::string fault = fill_field(*field, value); !fault.empty()) return fault;
    }
    return {};
  }

 private:
  [[nodiscard]] std::string fill_field(const FieldDescriptor& field, element value) {
    if (field.is_map()) return fill_map(field, value);
    if (field.is_repeated()) return fill_list(field, value);
    if (const auto* const oneof = field.real_containing_oneof(); oneof != nullptr) {
      const auto* const present = reflection_.GetOneofFieldDescriptor(message_, oneof);
      if (present != nullptr && present != &field) {
        return field.name() + ": stands beside " + present->name() + ", and one of them alone may";
      }
    }
    return place(field.name(), set(field, value));
  }

  [[nodiscard]] std::string fill_list(const FieldDescriptor& field, element value) {
    simdjson::dom::array list;
    if (value.get(list) != simdjson::SUCCESS) return field.name() + ": must be a list";
    reflection_.ClearField(&message_, &field);
    for (std::size_t i = 0; const element item : list) {
      if (std::string fault = set(field, item); !fault.empty()) {
        return place(field.name() + "[" + std::to_string(i) + "]", std::move(fault));
      }
      ++i;
    }
    return {};
  }

  [[nodiscard]] std::string fill_map(const FieldDescriptor& field, element value) {
    simdjson::dom::object object;
    if (value.get(object) != simdjson::SUCCESS) return field.name() + ": must be an object";
    const auto* const name = field.message_type()->map_key();
    const auto* const content = field.message_type()->map_value();
    if (name->cpp_type() != FieldDescriptor::CPPTYPE_STRING) return field.name() + ": cannot be read";
    reflection_.ClearField(&message_, &field);
    for (const auto [key, item] : object) {
      Message& entry = *reflection_.AddMessage(&message_, &field);
      entry.GetReflection()->SetString(&entry, name, std::string(key));
      if (std::string fault = message_filler(entry).set(*content, item); !fault.empty()) {
        return place(field.name(), std::move(fault));
      }
    }
    return {};
  }

  /// ": fault" behind a place, or ".field: fault".
  [[nodiscard]] static std::string place(const std::string& name, std::string fault) {
    if (fault.empty()) return fault;
    return name + fault;
  }

  template <class Value, class Set, class Add>
  [[nodiscard]] std::string store(const FieldDescriptor& field, std::optional<Value> value, std::string_view right,
                                  Set setter, Add adder) {
    if (!value) return ": must be " + std::string(right);
    if (field.is_repeated()) {
      (reflection_.*adder)(&message_, &field, std::move(*value));
    } else {
      (reflection_.*setter)(&message_, &field, std::move(*value));
    }
    return {};
  }

  [[nodiscard]] std::string set(const FieldDescriptor& field, element value) {
    constexpr std::string_view whole = "a whole number in its range, or one as text";
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT64:
        return store(field, number_of<std::int64_t>(value), whole, &Reflection::SetInt64, &Reflection::AddInt64);
      case FieldDescriptor::CPPTYPE_UINT64:
        return store(field, number_of<std::uint64_t>(value), whole, &Reflection::SetUInt64, &Reflection::AddUInt64);
      case FieldDescriptor::CPPTYPE_INT32:
        return store(field, number_of<std::int32_t>(value), whole, &Reflection::SetInt32, &Reflection::AddInt32);
      case FieldDescriptor::CPPTYPE_UINT32:
        return store(field, number_of<std::uint32_t>(value), whole, &Reflection::SetUInt32, &Reflection::AddUInt32);
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return store(field, double_of(value), "a number", &Reflection::SetDouble, &Reflection::AddDouble);
      case FieldDescriptor::CPPTYPE_BOOL: {
        bool is_true = false;
        const auto truth = value.get(is_true) == simdjson::SUCCESS ? std::optional(is_true) : std::nullopt;
        return store(field, truth, "true or false", &Reflection::SetBool, &Reflection::AddBool);
      }
      case FieldDescriptor::CPPTYPE_STRING: return set_text(field, value);
      case FieldDescriptor::CPPTYPE_ENUM: return set_enumerator(field, value);
      case FieldDescriptor::CPPTYPE_MESSAGE: return set_message(field, value);
      case FieldDescriptor::CPPTYPE_FLOAT: break;
    }
    return ": cannot be read";
  }

  [[nodiscard]] std::string set_text(const FieldDescriptor& field, element value) {
    if (field.type() == FieldDescriptor::TYPE_BYTES) {
      return store(field, bytes_of(value), "bytes in base64", &Reflection::SetString, &Reflection::AddString);
    }
    std::string_view text;
    const auto read = value.get(text) == simdjson::SUCCESS ? std::optional(std::string(text)) : std::nullopt;
    return store(field, read, "a text", &Reflection::SetString, &Reflection::AddString);
  }

  [[nodiscard]] std::string set_enumerator(const FieldDescriptor& field, element value) {
    std::optional<int> number;
    if (std::string_view name; value.get(name) == simdjson::SUCCESS) {
      const auto* const found = field.enum_type()->FindValueByName(std::string(name));
      if (found == nullptr) return ": no " + field.enum_type()->name() + " is called " + std::string(name);
      number = found->number();
    } else {
      number = number_of<std::int32_t>(value);
    }
    return store(field, number, "the name or the number of a " + field.enum_type()->name(), &Reflection::SetEnumValue,
                 &Reflection::AddEnumValue);
  }

  [[nodiscard]] std::string set_message(const FieldDescriptor& field, element value) {
    Message& part = field.is_repeated() ? *reflection_.AddMessage(&message_, &field)
                                        : *reflection_.MutableMessage(&message_, &field);
    if (field.message_type() == google::protobuf::Int64Value::descriptor()) {
      return message_filler(part).set(*field.message_type()->field(0), value);
    }
    simdjson::dom::object object;
    if (value.get(object) != simdjson::SUCCESS) return ": must be an object";
    std::string fault = message_filler(part).fill(object);
    return fault.empty() ? fault : "." + fault;
  }

  Message& message_;
  const Descriptor& type_;
  const Reflection& reflection_;
};

}  // namespace

std::string fill_message(simdjson::dom::object object, Message& message) {
  return message_filler(message).fill(object);
}

}  // namespace cenote::manager
