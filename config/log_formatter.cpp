#include "config/log_formatter.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spdlog/details/log_msg.h>

#include <chrono>
#include <cmath>

#include "core/text.hpp"

namespace cenote {
namespace {

constexpr char record_separator = '\x1e';
constexpr char unit_separator = '\x1f';

using buffer = spdlog::memory_buf_t;

void append(buffer& out, std::string_view text) {
  out.append(text.data(), text.data() + text.size());
}

void append_without_separators(std::string& out, std::string_view text) {
  for (const char c : text) out += (c == record_separator || c == unit_separator) ? ' ' : c;
}

struct content_encoder {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(double value) const {
    // JSON has no infinities; a word in quotes is what every reader takes.
    return std::isfinite(value) ? fmt::format("{}", value) : fmt::format("\"{}", value);
  }
  std::string operator()(std::string_view value) const {
    std::string encoded = "\"";
    append_without_separators(encoded, value);
    return encoded;
  }
  std::string operator()(auto value) const { return fmt::format("{}", value); }
};

/// With a backslash before what would end a string.
std::string quoted(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

/// One UTF-8 sequence of a JSON string.
void append_json(buffer& out, std::string_view sequence) {
  const auto byte = static_cast<unsigned char>(sequence.front());
  const auto last = static_cast<unsigned char>(sequence.back());
  if (byte == '\n' || byte == '\t') {
    append(out, byte == '\n' ? "\\n" : "\\t");
  } else if (byte < 0x20 || byte == 0x7f || (byte == 0xc2 && last < 0xa0)) {
    append(out, fmt::format("\\u{:04x}", last));
  } else {
    append(out, quoted(sequence));
  }
}

/// A JSON string. Bytes that are not UTF-8 become the replacement character: a collector refuses the line
/// otherwise.
void append_json_string(buffer& out, std::string_view text) {
  out.push_back('"');
  while (!text.empty()) {
    const auto length = utf8_length(text);
    if (length == 0) {
      append(out, "\xef\xbf\xbd");
    } else {
      append_json(out, text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out.push_back('"');
}

std::string_view take_until(std::string_view& text, char separator) {
  const auto at = text.find(separator);
  const auto head = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view{} : text.substr(at + 1);
  return head;
}

/// Calls `field(key, value, is_string)` for each field behind the message.
void for_each_field(std::string_view fields, auto&& field) {
  while (!fields.empty()) {
    auto item = take_until(fields, record_separator);
    const auto key = take_until(item, unit_separator);
    const bool is_string = item.starts_with('"');
    field(key, is_string ? item.substr(1) : item, is_string);
  }
}

std::string_view level_name(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::trace: return "trace";
    case spdlog::level::debug: return "debug";
    case spdlog::level::info: return "info";
    case spdlog::level::warn: return "warn";
    default: return "error";
  }
}

/// The syslog priority that sd-daemon(3) reads from "<n>".
char journal_priority(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::trace:
    case spdlog::level::debug: return '7';
    case spdlog::level::info: return '6';
    case spdlog::level::warn: return '4';
    default: return '3';
  }
}

std::string utc(spdlog::log_clock::time_point time) {
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
  const auto seconds = static_cast<std::time_t>(millis / 1000);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(seconds), millis % 1000);
}

std::string_view as_view(spdlog::string_view_t text) {
  return {text.data(), text.size()};
}

/// "component: message key=value", shared by text and journal.
void append_text(buffer& out, const spdlog::details::log_msg& event) {
  auto payload = as_view(event.payload);
  append(out, as_view(event.logger_name));
  append(out, ": ");
  append(out, printable(take_until(payload, record_separator)));
  for_each_field(payload, [&out](std::string_view key, std::string_view value, bool is_string) {
    const bool plain = !value.empty() && value.find_first_of(" =\"\\") == std::string_view::npos;
    const std::string_view quote = is_string && !plain ? "\"" : "";
    out.push_back(' ');
    append(out, key);
    out.push_back('=');
    append(out, quote);
    append(out, printable(quote.empty() ? std::string(value) : quoted(value)));
    append(out, quote);
  });
  out.push_back('\n');
}

class text_formatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& event, buffer& out) override {
    append(out, fmt::format("{} {:<5} ", utc(event.time), level_name(event.level)));
    append_text(out, event);
  }
  [[nodiscard]] std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<text_formatter>(); }
};

class journal_formatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& event, buffer& out) override {
    append(out, fmt::format("<{}>", journal_priority(event.level)));
    append_text(out, event);
  }
  [[nodiscard]] std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<journal_formatter>();
  }
};

class json_log_formatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& event, buffer& out) override {
    auto payload = as_view(event.payload);
    append(out, fmt::format(R"({{"time":"{}","level":"{}","component":)", utc(event.time), level_name(event.level)));
    append_json_string(out, as_view(event.logger_name));
    append(out, R"(,"message":)");
    append_json_string(out, take_until(payload, record_separator));
    for_each_field(payload, [&out](std::string_view key, std::string_view value, bool is_string) {
      out.push_back(',');
      append_json_string(out, key);
      out.push_back(':');
      if (is_string) {
        append_json_string(out, value);
      } else {
        append(out, value);
      }
    });
    append(out, "}\n");
  }
  [[nodiscard]] std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<json_log_formatter>();
  }
};

}  // namespace

std::string encode_payload(std::string_view message, std::initializer_list<log_field> fields) {
  std::string payload;
  append_without_separators(payload, message);
  for (const auto& field : fields) {
    payload += record_separator;
    append_without_separators(payload, field.key);
    payload += unit_separator;
    payload += std::visit(content_encoder{}, field.value);
  }
  return payload;
}

std::unique_ptr<spdlog::formatter> make_formatter(config::log_format format) {
  switch (format) {
    case config::log_format::json: return std::make_unique<json_log_formatter>();
    case config::log_format::journal: return std::make_unique<journal_formatter>();
    case config::log_format::automatic:
    case config::log_format::text: break;
  }
  return std::make_unique<text_formatter>();
}

}  // namespace cenote
