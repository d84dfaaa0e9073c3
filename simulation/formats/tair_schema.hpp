// Requests in the form of the Tair KVCache optimizer's own traces.
#pragma once

#include "simulation/formats/format.hpp"
#include "simulation/formats/instance_names.hpp"

namespace cenote::formats {

/// {instance_id, timestamp_us, keys, query_type, input_len, total_keys}: `keys` are asked for, and `total_keys` are
/// there afterwards; without them the keys are. A key stands for its block and all before it, within its instance.
/// Without input_len each block is full.
class tair_schema final : public line_format {
 public:
  [[nodiscard]] static bool recognizes(const simdjson::dom::element& object);
  [[nodiscard]] line_result take(const simdjson::dom::element& object, std::uint64_t line,
                                 line_requests& target) override;

 private:
  instance_names names_;
};

}  // namespace cenote::formats
