// Members of a trace's JSON objects, each checked.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/checksum.hpp"
#include "simulation/formats/format.hpp"

namespace cenote::formats {

/// Whether `object` has a member of that name.
[[nodiscard]] bool has(const simdjson::dom::element& object, std::string_view name);
/// A member that is text, or none.
[[nodiscard]] std::optional<std::string_view> text_member(const simdjson::dom::element& object, std::string_view name);
/// A member that is a whole number of 64 bits, with a sign or without; its bits.
[[nodiscard]] std::optional<std::uint64_t> word_member(const simdjson::dom::element& object, std::string_view name);

/// Names of members with the same meaning in the traces of different programs.
struct time_name {
  std::string_view name;
  time_unit unit = time_unit::automatic;
};
inline constexpr std::array<std::string_view, 6> token_names{"input_length",  "input_tokens",  "input_len",
                                                             "prompt_tokens", "prompt_length", "isl"};
inline constexpr std::array<std::string_view, 3> id_names{"hash_ids", "block_hashes", "block_ids"};
inline constexpr std::array<time_name, 8> time_names{{{"timestamp"},
                                                      {"created_time"},
                                                      {"arrival_time"},
                                                      {"timestamp_ms", time_unit::milliseconds},
                                                      {"timestamp_us", time_unit::microseconds},
                                                      {"timestamp_ns", time_unit::nanoseconds},
                                                      {"timestamp_s", time_unit::seconds},
                                                      {"trigger_time_us", time_unit::microseconds}}};
inline constexpr std::string_view engine_mask = "block_mask";  ///< blocks that the engine had itself, in Tair's formats
inline constexpr std::array<std::string_view, 3> block_token_names{"block_size", "block_tokens", "tokens_per_block"};

/// The first of `names` that `object` has; none: an empty one.
[[nodiscard]] std::string_view present_name(const simdjson::dom::element& object,
                                            std::span<const std::string_view> names);
/// The tokens of a block, where a line has them: they win against the format's number. A fault where they differ from
/// an option's or another line's.
[[nodiscard]] line_result take_block_tokens(const simdjson::dom::element& object, line_requests& target);
/// Whether a member of this name, which a line in the usual form does not have, has a meaning.
[[nodiscard]] bool is_rare_name(std::string_view name) noexcept;

/// A finite number, which may be written as text.
[[nodiscard]] std::optional<double> number_member(const simdjson::dom::element& object, std::string_view name);

/// Numbers for ids that are text, from 1 as they first come, or hashes of them. Not thread-safe.
class text_ids {
 public:
  [[nodiscard]] std::uint64_t number(std::string_view text, key_naming naming) {
    if (naming == key_naming::hashed) return checksum_of(text.data(), text.size());
    return numbers_.try_emplace(std::string(text), numbers_.size() + 1).first->second;
  }

 private:
  std::unordered_map<std::string, std::uint64_t> numbers_;
};

/// The time of a request: a number of 0 to 10^19, whole or not, which may be written as text. The unit is that of the
/// first of `names` that is there.
[[nodiscard]] line_result take_time(const simdjson::dom::element& object, std::span<const time_name> names,
                                    line_request& target);
[[nodiscard]] line_result take_time(const simdjson::dom::element& object, std::string_view name, line_request& target);
/// Input tokens: a whole number of 0 to most_tokens, also as 512.0 or as text.
[[nodiscard]] line_result take_tokens(const simdjson::dom::element& object, std::string_view name,
                                      std::uint64_t& target);
/// Appends a list of ids: whole numbers of 64 bits, with a sign or without. Text is taken where there are `texts`, and
/// then all ids of a trace are of one form.
[[nodiscard]] line_result take_ids(const simdjson::dom::element& object, std::string_view name, line_requests& target,
                                   text_ids* texts = nullptr);
/// The name of an instance: text of at most 1,024 bytes, good as long as the line is.
[[nodiscard]] line_result take_instance(const simdjson::dom::element& object, std::string_view name,
                                        std::string_view& target);

/// A mask of at most `limit` blocks: a whole number of those in front, or a list of true and false.
[[nodiscard]] line_result take_mask(const simdjson::dom::element& object, std::string_view name, std::size_t limit,
                                    std::vector<bool>& target);
/// The leading blocks of a mask of at most `limit`. Without the member there are none.
[[nodiscard]] line_result take_leading(const simdjson::dom::element& object, std::string_view name, std::size_t limit,
                                       std::uint32_t& target);

}  // namespace cenote::formats
