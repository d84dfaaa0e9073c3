// Requests as the Qwen-Bailian traces have them.
#pragma once

#include <optional>
#include <unordered_map>

#include "simulation/formats/format.hpp"
#include "simulation/formats/key_numbers.hpp"

namespace cenote::formats {

/// {chat_id, parent_chat_id, timestamp (s), input_length, hash_ids}: an id stands for the content of its block alone,
/// so a block is known by its id and the block before it. A chat goes on its parent's session.
class bailian final : public line_format {
 public:
  [[nodiscard]] static bool recognizes(const simdjson::dom::element& object);
  [[nodiscard]] line_result take(const simdjson::dom::element& object, std::uint64_t line,
                                 line_requests& target) override;

 private:
  std::uint32_t session_of(const simdjson::dom::element& object);

  key_numbers numbers_;
  std::unordered_map<std::uint64_t, std::uint32_t> sessions_;  ///< by chat
  std::uint32_t next_session_ = 0;
};

}  // namespace cenote::formats
