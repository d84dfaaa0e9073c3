// Requests as Mooncake publishes them, and as programs of the field write them after it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "simulation/formats/format.hpp"
#include "simulation/formats/members.hpp"

namespace cenote::formats {

/// {timestamp, input_length, hash_ids}: an id stands for its block and all before it. Also with other names of the
/// three, with ids as text, and with turns of sessions: of one `session_id`, or listed in `turns`. A turn without a
/// time comes its `delay` behind the one before it.
class mooncake final : public line_format {
 public:
  [[nodiscard]] static bool recognizes(const simdjson::dom::element& object);
  [[nodiscard]] line_result take(const simdjson::dom::element& object, std::uint64_t line,
                                 line_requests& target) override;

 private:
  line_result take_turn(const simdjson::dom::element& object, std::uint64_t line, std::optional<std::uint32_t> session,
                        line_requests& target);
  std::optional<std::uint32_t> session_of(const simdjson::dom::element& object, key_naming naming);

  text_ids texts_;
  std::unordered_map<std::string, std::uint32_t> sessions_;
  std::uint32_t next_session_ = 1;  ///< 0: requests without one
};

}  // namespace cenote::formats
