// Requests as Mooncake publishes them.
#pragma once

#include "simulation/formats/format.hpp"

namespace cenote::formats {

/// {timestamp, input_length, hash_ids}: an id stands for its block and all before it.
class mooncake final : public line_format {
 public:
  [[nodiscard]] static bool recognizes(const simdjson::dom::element& object);
  [[nodiscard]] line_result take(const simdjson::dom::element& object, std::uint64_t line,
                                 line_requests& target) override;
};

}  // namespace cenote::formats
