// Files of recorded requests: `.ctrace`, or a JSON object a line, plain or packed with gzip or Zstandard.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "simulation/formats/format.hpp"
#include "simulation/trace.hpp"

namespace cenote {

/// By their names in options.
[[nodiscard]] const std::map<std::string, time_unit>& time_units();

/// `auto`, and the names of formats::table().
[[nodiscard]] std::vector<std::string> format_names();

struct trace_reading {
  /// One of formats::table(), or `cenote`; `auto`: that of the first good line that is one's, as `cenote` is in any
  /// case where nothing is given; else `mooncake`.
  std::string_view format{};
  std::uint64_t block_tokens = 0;  ///< 0: those of the format
  time_unit unit = time_unit::automatic;
  bool allow_left_out = false;  ///< go on even if more than a tenth of the lines is left out
  bool full_blocks = false;     ///< without the blocks that are not full of tokens
  std::size_t most = 0;         ///< only the first so many requests; 0: all
  formats::key_sharing sharing = formats::key_sharing::within_instance;
};

struct read_trace {
  std::string_view format;
  simulation::trace requests;
  std::vector<std::string> instances{};  ///< names by number; none where the format has none
  std::vector<std::string> warnings;  ///< "FILE:LINE: what is wrong", the first line of each kind with how many follow
  std::uint64_t lines = 0;            ///< that are not empty
  std::uint64_t left_out = 0;         ///< of those
  bool full_blocks = false;           ///< the file was made without the blocks that are not full
  bool anonymised = false;
  std::optional<std::uint64_t> seed{};  ///< given: the identities of blocks are made of it and their numbers
};

constexpr std::string_view own_format = "cenote";

/// Refuses a format that is unknown (invalid_argument), and one that `path` surely has not (malformed).
[[nodiscard]] result<void> check_format(const std::string& path, const trace_reading& reading);

/// Reads `path`: a `.ctrace`, recognized by its first bytes, whose `lines` are those of the log that it was made of; or
/// lines of one of formats::table(); members that it does not name are ignored, as are empty lines. Requests come in
/// the order of their times; a read with the write of the same chain next to it is one request. A line that makes no
/// sense is left out. Times since 1970 become times since the first request.
///
/// Fails when the file cannot be read, is one JSON array, has no good line, or too many bad ones (malformed), for an
/// unknown format (invalid_argument), and for a `.ctrace` that is damaged (malformed), would take more memory than
/// there is (limit_exceeded), or contradicts `reading` (invalid_argument).
[[nodiscard]] result<read_trace> read_trace_file(const std::string& path, const trace_reading& reading = {});

}  // namespace cenote
