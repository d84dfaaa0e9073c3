// Checks of a trace's requests, and the complaints about its lines.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/random_number.hpp"
#include "simulation/formats/format.hpp"

namespace cenote::replay {

/// Faults of lines, in kinds: the first line of each stands for all. Not thread-safe.
class complaint_list {
 public:
  /// The reason for which a line is left out. False, for callers that give up then.
  bool add(std::string_view kind, std::uint64_t line, std::string text);
  bool add(std::uint64_t line, std::string_view text) { return add(text, line, std::string(text)); }
  /// A fault of a line that is taken all the same. No kind is one of add().
  void note(std::string_view kind, std::uint64_t line, std::string text);

  /// "FILE:LINE: text", with the number of further ones.
  [[nodiscard]] std::vector<std::string> texts(const std::string& path) const;
  /// The first of them that left a line out, if one did.
  [[nodiscard]] std::optional<std::string> first_reason(const std::string& path) const;

 private:
  enum class line_fate : std::uint8_t { left_out, taken };
  struct complaint {
    std::string kind;
    std::uint64_t line = 0;
    std::string text;
    line_fate fate = line_fate::left_out;
    std::uint64_t further = 0;

    [[nodiscard]] std::string text_of(const std::string& path) const;
  };

  void keep(std::string_view kind, std::uint64_t line, std::string text, line_fate fate);

  std::vector<complaint> all_;
};

/// Looks at requests as they are read. Not thread-safe; `complaints` outlives it.
class request_checks {
 public:
  explicit request_checks(complaint_list& complaints) : complaints_(complaints) {}

  /// Whether a request of `read` makes sense: its tokens, as many ids as they need at most, none twice.
  bool passes(const formats::line_request& request, const formats::line_requests& read);

 private:
  bool fits(const formats::line_request& request, std::uint64_t block_tokens);
  std::optional<std::uint64_t> find_twice(std::span<const std::uint64_t> ids);

  struct id_place {
    std::uint64_t id = 0;
    std::uint64_t request = 0;  ///< by the count of those that were looked through
  };

  complaint_list& complaints_;
  std::vector<id_place> places_;          ///< never emptied: ids of other requests count as free places
  std::uint64_t salt_ = random_number();  ///< of places, so that ids that all have the same cannot be made
  std::uint64_t looked_through_ = 0;
};

/// The tokens of a block that nine tenths of `sample` fit: `usual`, or a power of two. Nothing where it has none, or
/// where several do. Requests with the last block and without it both fit.
[[nodiscard]] std::optional<std::uint64_t> fitting_block_tokens(std::span<const formats::line_request> sample,
                                                                std::uint64_t usual);

/// Makes one request of each read with the write of the same chain directly behind it.
void join_reads_and_writes(formats::line_requests& read);

}  // namespace cenote::replay
