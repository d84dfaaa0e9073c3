#include "services/indexer/backends/pod_entry.hpp"

#include <array>
#include <charconv>

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

void add_code_point(std::string& text, std::uint32_t code) {
  const auto add = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return add(code);
  if (code < 0x800) {
    add(0xc0 | (code >> 6U));
  } else if (code < 0x10000) {
    add(0xe0 | (code >> 12U));
    add(0x80 | ((code >> 6U) & 0x3fU));
  } else {
    add(0xf0 | (code >> 18U));
    add(0x80 | ((code >> 12U) & 0x3fU));
    add(0x80 | ((code >> 6U) & 0x3fU));
  }
  add(0x80 | (code & 0x3fU));
}

/// Reads one flat JSON object, and fails at the first byte that does not fit.
class field_reader {
 public:
  explicit field_reader(std::string_view text) noexcept : rest_(text) {}

  std::optional<pod_entry> read() {
    pod_entry entry;
    bool has_group = false;
    std::int64_t group = 0;
    if (!take('{')) return std::nullopt;
    for (bool is_first = true; !take('}'); is_first = false) {
      if (!is_first && !take(',')) return std::nullopt;
      const auto name = read_text();
      if (!name || !take(':')) return std::nullopt;
      const bool is_read = *name == "PodIdentifier" ? read_into(entry.pod)
                           : *name == "DeviceTier"  ? read_into(entry.tier)
                           : *name == "Speculative" ? read_into(entry.is_speculative)
                           : *name == "HasGroup"    ? read_into(has_group)
                           : *name == "GroupIdx"    ? read_into(group)
                                                    : pass_value();
      if (!is_read) return std::nullopt;
    }
    pass_spaces();
    if (!rest_.empty() || entry.pod.empty() || entry.tier.empty()) return std::nullopt;
    if (has_group) entry.group = group;
    return entry;
  }

 private:
  void pass_spaces() noexcept {
    const auto first = rest_.find_first_not_of(" \t\r\n");
    rest_.remove_prefix(first == std::string_view::npos ? rest_.size() : first);
  }
  bool take(char c) noexcept {
    pass_spaces();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool take_word(std::string_view word) noexcept {
    pass_spaces();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  bool read_into(std::string& text) {
    auto value = read_text();
    if (value) text = std::move(*value);
    return value.has_value();
  }
  bool read_into(bool& value) noexcept {
    value = take_word("true");
    return value || take_word("false");
  }
  bool read_into(std::int64_t& value) noexcept {
    pass_spaces();
    const auto [end, code] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (code != std::errc()) return false;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return true;
  }
  bool pass_value() {
    pass_spaces();
    if (rest_.starts_with('"')) return read_text().has_value();
    const auto end = rest_.find_first_of(",}");
    if (end == std::string_view::npos || end == 0 ||
        rest_.substr(0, end).find_first_of("{[\"") != std::string_view::npos)
      return false;
    rest_.remove_prefix(end);
    return true;
  }
  std::optional<std::uint32_t> read_unit() noexcept {
    std::uint32_t code = 0;
    const auto text = rest_.substr(0, 4);
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), code, 16);
    if (failure != std::errc() || end != text.data() + 4 || text.size() != 4) return std::nullopt;
    rest_.remove_prefix(4);
    return code;
  }
  bool read_escape(std::string& text) {
    const char c = rest_.front();
    rest_.remove_prefix(1);
    constexpr std::string_view names = "\"\\/bfnrt";
    constexpr std::string_view values = "\"\\/\b\f\n\r\t";
    if (const auto at = names.find(c); at != std::string_view::npos) {
      text += values[at];
      return true;
    }
    auto code = c == 'u' ? read_unit() : std::nullopt;
    if (!code) return false;
    if (*code >= 0xd800 && *code < 0xdc00 && rest_.starts_with("\\u")) {
      rest_.remove_prefix(2);
      const auto low = read_unit();
      if (!low || *low < 0xdc00 || *low > 0xdfff) return false;
      code = 0x10000 + ((*code - 0xd800) << 10U) + (*low - 0xdc00);
    }
    add_code_point(text, *code);
    return true;
  }
  std::optional<std::string> read_text() {
    if (!take('"')) return std::nullopt;
    std::string text;
    while (!rest_.empty() && text.size() <= most_entry_name) {
      const auto end = rest_.find_first_of("\"\\");
      if (end == std::string_view::npos) return std::nullopt;
      text += rest_.substr(0, end);
      const bool is_end = rest_[end] == '"';
      rest_.remove_prefix(end + 1);
      if (is_end) return text.size() <= most_entry_name ? std::optional(std::move(text)) : std::nullopt;
      if (rest_.empty() || !read_escape(text)) return std::nullopt;
    }
    return std::nullopt;
  }

  std::string_view rest_;
};

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
  return field_reader(text).read();
}

}  // namespace cenote::indexer
