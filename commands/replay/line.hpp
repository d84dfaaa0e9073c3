// The lines of a trace: one after the other, and what stands in most of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "commands/replay/input.hpp"
#include "core/error.hpp"
#include "core/huge_vector.hpp"

namespace cenote {

/// Cuts bytes into lines without holding more of them than the longest line needs.
class line_reader {
 public:
  /// Behind each line lie that many bytes that may be read.
  static constexpr std::size_t padding = 64;

  /// `longest` bytes are the longest line; 0: any.
  explicit line_reader(byte_source& source, std::size_t longest = 0);

  /// The next line without its end, good until the next call; no value: there are no more. Errors: those of the source,
  /// and limit_exceeded for a line that is too long.
  [[nodiscard]] result<std::optional<std::string_view>> next();

 private:
  /// Has more bytes behind those that are left.
  [[nodiscard]] result<void> refill();

  byte_source& from_;
  std::size_t longest_;
  std::vector<char> bytes_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool ended_ = false;
};

struct usual_line {
  std::uint64_t timestamp = 0;
  std::uint64_t input_length = 0;
};

/// Reads a line in the form that nearly all have, many times as fast as a JSON parser does, and appends its `hash_ids`
/// to `ids`: one object in which the members that count come once and hold whole numbers, and others hold such or plain
/// strings. No value: another form, right or wrong; some ids may have been appended. 8 bytes behind `line` are read.
[[nodiscard]] std::optional<usual_line> parse_usual_line(std::string_view line, huge_vector<std::uint64_t>& ids);

}  // namespace cenote
