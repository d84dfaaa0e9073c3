// The lines of a trace's file as requests: formats, the size of a block, lines that make no sense.
#pragma once

#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
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

/// Reads the lines of one file. Requests have no times yet. `path` and `reading` outlive it. Not thread-safe.
class trace_lines {
 public:
  /// Called when requests came that make sense, and may take them: take_requests(). Its error ends the reading.
  using request_listener = std::function<result<void>()>;

  trace_lines(const std::string& path, const trace_reading& reading, formats::key_naming naming);

  /// All lines. Without a listener the requests of all of them stay here; refused is what takes more memory than there
  /// is (limit_exceeded), where it follows from the first lines before the others are read. With one no line may have
  /// more than 64 MiB.
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
  [[nodiscard]] result<void> decide();
  void take_fitting_size();
  void reserve_ids();
  [[nodiscard]] result<void> check_memory() const;
  [[nodiscard]] result<void> check_whole_file() const;
  [[nodiscard]] std::uint64_t needed_bytes() const noexcept;
  [[nodiscard]] result<void> refuse_array(std::uint64_t line) const;
  void open(const formats::format& format);
  bool parse(std::string_view line, std::uint64_t number);
  bool parse_json(std::string_view line, std::uint64_t number);
  bool judge_from(std::size_t count);
  bool judge_one(formats::line_request& request);
  [[nodiscard]] result<void> end();

  const std::string& path_;
  const trace_reading& reading_;
  simdjson::dom::parser parser_;
  const formats::format* format_ = nullptr;  ///< none until a line is recognized
  std::unique_ptr<formats::line_format> reader_;
  bool has_usual_lines_ = false;
  bool is_streamed_ = false;
  bool is_decided_ = false;  ///< the tokens of a block are known
  formats::line_requests read_;
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
