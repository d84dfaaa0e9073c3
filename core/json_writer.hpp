// JSON that is written piece by piece into a text, for answers that are made often.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cenote {

/// Appends `value` to `out` as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD.
void append_json_text(std::string& out, std::string_view value);

/// Appends values to a text, with the commas between them. It allocates nothing but the growth of the text. Objects and
/// lists are closed by the caller. Not thread-safe.
class json_writer {
 public:
  explicit json_writer(std::string& out) noexcept : out_(out) {}

  void begin_object() { open('{'); }
  void end_object() { close('}'); }
  void begin_list() { open('['); }
  void end_list() { close(']'); }
  /// The name of the value that follows. `name` has nothing that is to be escaped.
  void name(std::string_view name);
  /// A name that others chose.
  void name_text(std::string_view name);
  void text(std::string_view value);
  void number(std::uint64_t value);
  void signed_number(std::int64_t value);
  /// The shortest form that reads back as the same number; null for what JSON has no number for.
  void real(double value);
  void boolean(bool value);
  void null();
  /// A number as decimal text: beyond 2^53 many readers of JSON lose digits.
  void decimal_text(std::uint64_t value);

 private:
  void separate() {
    if (needs_comma_) out_.push_back(',');
    needs_comma_ = true;
  }
  void open(char bracket) {
    separate();
    out_.push_back(bracket);
    needs_comma_ = false;
  }
  void close(char bracket) {
    out_.push_back(bracket);
    needs_comma_ = true;
  }

  std::string& out_;
  bool needs_comma_ = false;
};

}  // namespace cenote
