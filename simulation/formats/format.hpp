// The forms in which recorded requests are written, a JSON object a line, and what a line holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/huge_vector.hpp"
#include "simulation/trace.hpp"

namespace simdjson::dom {
class element;
}

namespace cenote {

/// The unit of a timestamp. `automatic`: milliseconds, unless the middle one can only be a time since 1970 in another
/// unit.
enum class time_unit : std::uint8_t { automatic, seconds, milliseconds, microseconds, nanoseconds };

namespace formats {

/// A good line, or what several lines together mean.
struct line_request {
  /// The meaning of its time.
  enum class time_source : std::uint8_t {
    clock,  ///< a point in time
    delay,  ///< milliseconds behind the request of its session before it
    none,   ///< the line has no time
  };

  std::uint64_t line = 0;
  double time = 0;          ///< as it stands there
  std::uint64_t whole = 0;  ///< the same where it is a whole number
  bool is_whole = false;
  time_source source = time_source::clock;
  time_unit unit = time_unit::automatic;  ///< of its time, where the member's name has it
  std::uint64_t tokens = 0;               ///< of the input
  std::size_t first = 0;                  ///< its first id
  std::size_t count = 0;
  std::uint64_t time_us = 0;  ///< given when all are read
  simulation::chain_access access = simulation::chain_access::both;
  std::uint32_t instance = 0;
  std::uint32_t session = 0;
  std::uint32_t engine_blocks = 0;  ///< leading ones that the engine had itself
};

/// The scope in which equal keys are equal blocks, where a format has instances.
enum class key_sharing : std::uint8_t { within_instance, among_instances };

/// The way in which a block that a line names by more than one whole number gets its id.
enum class key_naming : std::uint8_t {
  numbered,  ///< exact: by a table of all, which grows
  hashed,    ///< 64 bits of a hash, without a table; all sessions are one
};

/// The form in which a trace's ids are written where it may be text: a number is no name of a text.
enum class id_form : std::uint8_t { unknown, numbers, text };

/// The requests of lines. `ids` are those of all, one after the other.
struct line_requests {
  std::vector<line_request> requests;
  huge_vector<std::uint64_t> ids;
  std::vector<std::string> instances;  ///< names by number, those of bad lines included; none where a format has none
  key_sharing sharing = key_sharing::within_instance;
  key_naming naming = key_naming::numbered;
  std::uint64_t block_tokens = simulation::trace::tokens_per_block;
  bool has_block_tokens = false;    ///< by an option, or by a line
  id_form form = id_form::unknown;  ///< of the ids of earlier lines
};

/// The reason for which a line is a bad one. Lines with the same `kind` have the same fault.
struct fault {
  std::string kind;
  std::string text;
};
using line_result = std::expected<void, fault>;

[[nodiscard]] std::unexpected<fault> bad(std::string text);
[[nodiscard]] std::unexpected<fault> bad(std::string_view kind, std::string text);

constexpr std::uint64_t most_tokens = 1'000'000'000;  ///< of one request: sums of 2^32 requests do not wrap

constexpr std::uint64_t most_block_tokens = std::uint64_t{1} << 20;

/// Reads the objects of one file, in its order. Not thread-safe. Of what a bad line appended, the caller keeps nothing.
class line_format {
 public:
  line_format() = default;
  line_format(const line_format&) = delete;
  line_format& operator=(const line_format&) = delete;
  virtual ~line_format() = default;

  /// Appends what `object` of line `line` gives: no request, or some. Ids are equal where a block and all before it,
  /// and the instance (with key_sharing::within_instance), are.
  [[nodiscard]] virtual line_result take(const simdjson::dom::element& object, std::uint64_t line,
                                         line_requests& target) = 0;
  /// There are no more lines.
  virtual void end(line_requests& /*target*/) {}
};

/// A row of the table of formats.
struct format {
  std::string_view name;
  std::uint64_t block_tokens = 0;  ///< where nothing else is given
  time_unit unit = time_unit::automatic;
  /// Whether an object is one of its lines.
  bool (*recognizes)(const simdjson::dom::element& object) = nullptr;
  std::unique_ptr<line_format> (*open)() = nullptr;
};

/// All of them; the first one is taken where nothing is recognized.
[[nodiscard]] std::span<const format> table() noexcept;
/// The one called `name`, or none.
[[nodiscard]] const format* find(std::string_view name) noexcept;
/// The one that an object is a line of, or none.
[[nodiscard]] const format* recognize(const simdjson::dom::element& object);

}  // namespace formats
}  // namespace cenote
