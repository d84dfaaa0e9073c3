// The lines of a trace's file as requests: formats, the size of a block, lines that make no sense.
#pragma once

#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands/replay/input.hpp"
#include "commands/replay/request_checks.hpp"
#include "commands/replay/trace.hpp"
#include "core/error.hpp"
#include "core/huge_vector.hpp"
#include "simulation/formats/format.hpp"

namespace cenote::replay {

/// The reason for which a sample refuses a trace.
inline constexpr std::string_view apart_text =
    "reads and writes are requests of their own, which a sample does not tell apart: it takes requests that store what "
    "they ask for";

/// Reads the lines of one file. Requests have no times yet. `path` and `reading` outlive it. Not thread-safe.
class trace_lines {
 public:
  /// Called when requests came that make sense, and may take them: take_requests(). Its error ends the reading.
  using request_listener = std::function<result<void>()>;

  /// Of memory beside the requests.
  struct bounds {
    std::size_t line = std::size_t{64} << 20;      ///< bytes of one, or without a listener a sixteenth of the room
    std::size_t undecided = std::size_t{1} << 20;  ///< ids before the tokens of a block are known; then a line's more
    std::optional<std::uint64_t> room{};           ///< bytes; none: what the machine has
  };

  trace_lines(const std::string& path, const trace_reading& reading, formats::key_naming naming);
  trace_lines(const std::string& path, const trace_reading& reading, formats::key_naming naming, const bounds& limits);

  /// All lines. Without a listener the requests of all of them stay here; refused is what takes more memory than there
  /// is (limit_exceeded), where it follows from the first lines before the others are read, and a line that is too
  /// long. With one a format whose requests wait for later lines is refused (unsupported).
  [[nodiscard]] result<void> read(byte_source& source, const request_listener& listener = {});

  [[nodiscard]] formats::line_requests& requests() noexcept { return read_; }
  /// Forgets the requests that came.
  void drop_requests() noexcept {
    requests_.clear();
    ids_.clear();
  }
  [[nodiscard]] complaint_list& complaints() noexcept { return complaints_; }
  [[nodiscard]] const formats::format* format() const noexcept { return format_; }
  [[nodiscard]] std::uint64_t lines() const noexcept { return lines_read_; }
  [[nodiscard]] std::uint64_t left_out() const noexcept { return left_out_; }
  /// A request is no good after all.
  void leave_out(std::string_view kind, std::uint64_t line, std::string text) {
    complaints_.add(kind, line, std::move(text));
    ++left_out_;
  }
  /// Refuses a file without requests (malformed), and one of whose lines more than a tenth were left out, unless the
  /// reading allows it.
  [[nodiscard]] result<void> judge(std::uint64_t requests) const;

 private:
  [[nodiscard]] result<void> take_line(std::string_view line, std::uint64_t number);
  [[nodiscard]] bool is_sample_full() const noexcept;
  [[nodiscard]] result<void> decide();
  void take_fitting_size();
  void reserve_ids();
  [[nodiscard]] result<void> check_memory() const;
  [[nodiscard]] result<void> check_whole_file() const;
  [[nodiscard]] std::uint64_t needed_bytes() const noexcept;
  [[nodiscard]] result<void> refuse_ctrace() const;
  [[nodiscard]] result<void> refuse_array(std::uint64_t line) const;
  void open(const formats::format& format);
  void close();
  [[nodiscard]] result<void> read_lines(byte_source& source, const request_listener& listener);
  [[nodiscard]] std::size_t longest_line() const noexcept;
  bool parse(std::string_view line, std::uint64_t number);
  bool parse_json(std::string_view line, std::uint64_t number);
  bool fits_own_size(std::size_t count);
  bool judge_from(std::size_t count);
  bool judge_one(formats::line_request& request);
  [[nodiscard]] result<void> end();

  const std::string& path_;
  const trace_reading& reading_;
  simdjson::dom::parser parser_;
  const formats::format* format_ = nullptr;  ///< none until a line is recognized
  std::unique_ptr<formats::line_format> reader_;
  const bounds bounds_;
  bool has_usual_lines_ = false;
  bool has_open_writes_ = false;  ///< requests wait for later lines
  bool is_streamed_ = false;
  bool is_decided_ = false;      ///< the tokens of a block are known
  formats::line_requests read_;  ///< its size of a block and form of ids: those of good lines
  std::vector<formats::line_request>& requests_ = read_.requests;
  huge_vector<std::uint64_t>& ids_ = read_.ids;
  complaint_list complaints_;
  request_checks checks_{complaints_};
  std::uint64_t lines_read_ = 0;  ///< that are not empty
  std::uint64_t left_out_ = 0;    ///< of those
  std::uint64_t bytes_ = 0;       ///< of the lines that were read
  std::uint64_t room_ = 0;        ///< bytes of memory
};

}  // namespace cenote::replay
