// Requests from the log of events that the Tair KVCache Manager publishes.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "simulation/formats/format.hpp"
#include "simulation/formats/instance_names.hpp"

namespace cenote::formats {

/// GetCacheLocation asks for its keys. StartWriteCache begins to store keys; they are there from FinishWriteCache with
/// the same write_session_id on, as far as its success_block goes: a number of leading ones, or a list of true and
/// false. A start without an end counts as stored 100 ms later. `source` is the instance. There are full blocks only.
class tair_log final : public line_format {
 public:
  [[nodiscard]] static bool recognizes(const simdjson::dom::element& object);
  [[nodiscard]] line_result take(const simdjson::dom::element& object, std::uint64_t line,
                                 line_requests& target) override;
  void end(line_requests& target) override;

 private:
  struct begun_write {
    line_request request;
    std::vector<std::uint64_t> ids;
  };

  line_result take_read(const simdjson::dom::element& object, line_request request, line_requests& target);
  line_result take_start(const simdjson::dom::element& object, line_request request, line_requests& target);
  line_result take_finish(const simdjson::dom::element& object, line_request request, line_requests& target);
  static void store(const begun_write& write, line_request request, line_requests& target);

  instance_names names_;
  std::unordered_map<std::string, begun_write> writes_;
};

}  // namespace cenote::formats
