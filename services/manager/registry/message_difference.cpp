// Where two messages of one type differ, by reflection.
#include "services/manager/registry/message_difference.hpp"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <vector>

#include "core/text.hpp"

namespace cenote::manager {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr std::size_t longest_value = 200;  // of a text in a message

// `index`: of a repeated field, else -1.
std::string value_text(const Message& message, const FieldDescriptor& field, int index) {
  std::string text;
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  printer.PrintFieldValueToString(message, &field, index, &text);
  return text;
}

std::string field_text(const Message& message, const FieldDescriptor& field, int index) {
  const auto& reflection = *message.GetReflection();
  const bool is_there = index >= 0 ? index < reflection.FieldSize(message, &field)
                                   : !field.has_presence() || reflection.HasField(message, &field);
  return is_there ? value_text(message, field, index) : "(none)";
}

std::optional<message_difference> difference_below(const Message& base, const Message& other, const std::string& path,
                                                   std::string_view ignored);

std::optional<message_difference> value_difference(const Message& base, const Message& other,
                                                   const FieldDescriptor& field, int index, const std::string& path,
                                                   std::string_view ignored) {
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    const auto& reflection = *base.GetReflection();
    if (index >= 0) {
      return difference_below(reflection.GetRepeatedMessage(base, &field, index),
                              reflection.GetRepeatedMessage(other, &field, index), path, ignored);
    }
    if (reflection.HasField(base, &field) == reflection.HasField(other, &field)) {
      return difference_below(reflection.GetMessage(base, &field), reflection.GetMessage(other, &field), path, ignored);
    }
  }
  std::string base_text = field_text(base, field, index);
  std::string other_text = field_text(other, field, index);
  if (base_text == other_text) return std::nullopt;
  return message_difference{.field = path,
                            .base = std::string(cut_text(base_text, longest_value)),
                            .other = std::string(cut_text(other_text, longest_value))};
}

std::optional<message_difference> list_difference(const Message& base, const Message& other,
                                                  const FieldDescriptor& field, const std::string& path,
                                                  std::string_view ignored) {
  const int base_size = base.GetReflection()->FieldSize(base, &field);
  const int other_size = other.GetReflection()->FieldSize(other, &field);
  for (int i = 0; i < std::min(base_size, other_size); ++i) {
    auto difference = value_difference(base, other, field, i, path + "[" + std::to_string(i) + "]", ignored);
    if (difference) return difference;
  }
  if (base_size == other_size) return std::nullopt;
  const int next = std::min(base_size, other_size);
  return message_difference{.field = path + "[" + std::to_string(next) + "]",
                            .base = std::string(cut_text(field_text(base, field, next), longest_value)),
                            .other = std::string(cut_text(field_text(other, field, next), longest_value))};
}

std::optional<message_difference> difference_below(const Message& base, const Message& other, const std::string& path,
                                                   std::string_view ignored) {
  const auto& descriptor = *base.GetDescriptor();
  std::vector<const FieldDescriptor*> fields;
  fields.reserve(static_cast<std::size_t>(descriptor.field_count()));
  for (int i = 0; i < descriptor.field_count(); ++i) fields.push_back(descriptor.field(i));
  std::ranges::sort(fields, {}, &FieldDescriptor::number);
  for (const FieldDescriptor* field : fields) {
    const std::string field_path = path.empty() ? field->name() : path + "." + field->name();
    if (field_path == ignored) continue;
    auto difference = field->is_repeated() ? list_difference(base, other, *field, field_path, ignored)
                                           : value_difference(base, other, *field, -1, field_path, ignored);
    if (difference) return difference;
  }
  return std::nullopt;
}

}  // namespace

std::optional<message_difference> first_difference(const Message& base, const Message& other,
                                                   std::string_view ignored) {
  return difference_below(base, other, {}, ignored);
}

}  // namespace cenote::manager
