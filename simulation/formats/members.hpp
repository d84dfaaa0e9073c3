// Members of a trace's JSON objects, each checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "simulation/formats/format.hpp"

namespace cenote::formats {

/// Whether `object` has a member of that name.
[[nodiscard]] bool has(const simdjson::dom::element& object, std::string_view name);
/// A member that is text, or none.
[[nodiscard]] std::optional<std::string_view> text_member(const simdjson::dom::element& object, std::string_view name);
/// A member that is a whole number of 64 bits, with a sign or without; its bits.
[[nodiscard]] std::optional<std::uint64_t> word_member(const simdjson::dom::element& object, std::string_view name);

/// The time of a request: a number of 0 to 10^19, whole or not.
[[nodiscard]] line_result take_time(const simdjson::dom::element& object, std::string_view name, line_request& target);
/// Input tokens: 0 to most_tokens.
[[nodiscard]] line_result take_tokens(const simdjson::dom::element& object, std::string_view name,
                                      std::uint64_t& target);
/// Whether ids may have a sign.
enum class id_form : std::uint8_t { natural, whole };
/// Appends a list of ids.
[[nodiscard]] line_result take_ids(const simdjson::dom::element& object, std::string_view name, id_form form,
                                   huge_vector<std::uint64_t>& ids);

}  // namespace cenote::formats
