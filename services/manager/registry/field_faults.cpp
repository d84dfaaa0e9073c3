// The faults of a request.
#include "services/manager/registry/field_faults.hpp"

#include "core/text.hpp"
#include "services/manager/registry/terms.hpp"

namespace cenote::manager {

void field_faults::add(std::string_view field, std::string_view fault) {
  if (!text_.empty()) text_ += "; ";
  text_.append(field).append(": ").append(fault);
}

void field_faults::check_name(std::string_view field, std::string_view name) {
  if (name.empty()) {
    add(field, "is needed");
  } else if (const auto checked = cenote::check_name(field, name, longest_name); !checked) {
    if (!text_.empty()) text_ += "; ";
    text_ += checked.error().message();
  }
}

void field_faults::check_count(std::string_view field, std::int64_t value) {
  if (value < 0) add(field, "is " + std::to_string(value) + ", and must not be negative");
}

rpc_outcome<> field_faults::outcome() const {
  if (text_.empty()) return {};
  return refuse(answer_code::invalid_argument, text_);
}

std::string indexed(std::string_view field, std::size_t index) {
  return std::string(field) + "[" + std::to_string(index) + "]";
}

}  // namespace cenote::manager
