#include "services/indexer/backends/pod_entry.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace cenote::indexer {

namespace {

void add_escape(std::string& text, unsigned code) {
  constexpr std::string_view digits = "0123456789abcdef";
  text += "\\u";
  for (const unsigned shift : {12U, 8U, 4U, 0U}) text += digits[(code >> shift) & 0xfU];
}

// Go escapes what would end a script in HTML, and the line ends of JavaScript.
void add_text(std::string& json, std::string_view text) {
  json += '"';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto code = static_cast<unsigned char>(c);
    if (text.substr(i, 2) == "\xe2\x80" && i + 2 < text.size() && (text[i + 2] == '\xa8' || text[i + 2] == '\xa9')) {
      add_escape(json, text[i + 2] == '\xa8' ? 0x2028 : 0x2029);
      i += 2;
    } else if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (c == '\n' || c == '\r' || c == '\t') {
      json += '\\';
      json += c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
    } else if (code < 0x20 || c == '<' || c == '>' || c == '&') {
      add_escape(json, code);
    } else {
      json += c;
    }
  }
  json += '"';
}

using nlohmann::json;

// Names and texts are short, and nothing is nested.
bool is_flat(const json& object) {
  return std::ranges::all_of(object.items(), [](const auto& member) {
    const auto* const text = member.value().template get_ptr<const std::string*>();
    const bool is_short =
        member.key().size() <= most_entry_name && (text == nullptr || text->size() <= most_entry_name);
    return is_short && !member.value().is_structured();
  });
}

// A member that is absent changes nothing. False: it is of another type.
template <class Value>
bool read_into(const json& object, const char* name, Value& value) {
  const auto found = object.find(name);
  if (found == object.end()) return true;
  const auto* const present = found->get_ptr<const Value*>();
  if (present != nullptr) value = *present;
  return present != nullptr;
}

// Numbers without a sign are a type of their own.
bool read_group(const json& object, std::int64_t& group) {
  const auto found = object.find("GroupIdx");
  if (found == object.end()) return true;
  const auto* const natural = found->get_ptr<const json::number_unsigned_t*>();
  if (natural != nullptr && !std::in_range<std::int64_t>(*natural)) return false;
  if (!found->is_number_integer()) return false;
  group = found->get<std::int64_t>();
  return true;
}

}  // namespace

std::string field_begin(std::string_view pod, std::string_view tier) {
  std::string text = R"({"PodIdentifier":)";
  add_text(text, pod);
  text += ',';
  if (tier.empty()) return text;
  text += R"("DeviceTier":)";
  add_text(text, tier);
  return text + ',';
}

std::string field_text(const pod_entry& entry) {
  return field_begin(entry.pod, entry.tier) + R"("Speculative":)" + (entry.is_speculative ? "true" : "false") +
         R"(,"HasGroup":)" + (entry.group ? "true" : "false") + R"(,"GroupIdx":)" +
         std::to_string(entry.group.value_or(0)) + "}";
}

std::optional<pod_entry> parse_field(std::string_view text) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object() || !is_flat(object)) return std::nullopt;
  pod_entry entry;
  bool has_group = false;
  std::int64_t group = 0;
  const bool is_read = read_into(object, "PodIdentifier", entry.pod) && read_into(object, "DeviceTier", entry.tier) &&
                       read_into(object, "Speculative", entry.is_speculative) &&
                       read_into(object, "HasGroup", has_group) && read_group(object, group);
  if (!is_read || entry.pod.empty() || entry.tier.empty()) return std::nullopt;
  if (has_group) entry.group = group;
  return entry;
}

}  // namespace cenote::indexer
